"""The command `status`, which shows the contents of workers' status pages."""
