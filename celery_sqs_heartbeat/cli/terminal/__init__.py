"""Output of the commands: with rich if it is installed, else plain text."""
