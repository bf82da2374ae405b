"""Runs groups of tests for `make`, and measures what they cost."""
