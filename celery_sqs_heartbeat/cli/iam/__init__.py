"""The command `iam`, which prints an IAM policy."""
