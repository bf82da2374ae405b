"""Worlds in which keepers meet everything that can go wrong, reproducible from a seed."""
