"""Worlds in which keepers meet every fault that we know. A seed reproduces each world."""
