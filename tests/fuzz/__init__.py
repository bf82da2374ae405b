"""Input of any shape from outside raises no error, loses no message and blocks nothing."""
