"""Terminal output of the commands: rich where it is installed, else plain text."""
