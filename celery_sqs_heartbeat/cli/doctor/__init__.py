"""The command `doctor` and its checks."""
