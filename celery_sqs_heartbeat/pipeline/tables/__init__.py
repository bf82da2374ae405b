"""The tables: pure functions from frames to a frame, a file for each concept."""
