"""What the pipeline makes of journals."""
