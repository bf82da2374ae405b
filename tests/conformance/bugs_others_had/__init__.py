"""One test for each bug that another system had."""
