"""Access to the data: a journal's segments as lines, and the tables in a warehouse."""
