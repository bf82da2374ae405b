"""Hypothesis compares the lease book with a model of the truth."""
