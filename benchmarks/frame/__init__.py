"""What all parts of the benchmarks share: their results, page, pictures and baseline."""
