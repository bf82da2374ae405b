"""The command `iam`, which prints a policy."""
