"""Scenarios of the visibility sample of Alibaba Cloud SMQ (formerly MNS)."""
