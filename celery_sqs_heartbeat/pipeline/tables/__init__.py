"""The tables, one a file: pure functions from frames to frames."""
