"""Times the pipeline on Spark beside Sail and DuckDB, and compares their tables."""
