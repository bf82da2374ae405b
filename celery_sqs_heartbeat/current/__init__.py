"""The lease of the running task, for the task itself."""
