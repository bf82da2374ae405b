"""The tables, one per file: pure functions from frames to frames."""
