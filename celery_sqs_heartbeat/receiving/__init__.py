"""Receives for a worker: its polls, the leases they begin, and what waits to be handed over."""
