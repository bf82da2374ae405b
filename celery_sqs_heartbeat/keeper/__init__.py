"""Keeps the leases: one book, the calls it plans, and the threads that make the calls."""
