"""Times the pipeline on Spark beside DuckDB, and compares their tables."""
