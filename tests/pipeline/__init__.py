"""The tables, reports and settings that the pipeline makes from journals."""
