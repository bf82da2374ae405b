"""Names that the heartbeat needs of other packages, and the check that they exist."""
