"""The command `status`, which shows what workers' status pages say."""
