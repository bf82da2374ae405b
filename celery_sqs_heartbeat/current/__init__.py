"""The lease of the running task, as the task itself sees it."""
