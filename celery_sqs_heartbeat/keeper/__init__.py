"""Keeps the leases: one book, the calls that it plans, and the threads that make them."""
