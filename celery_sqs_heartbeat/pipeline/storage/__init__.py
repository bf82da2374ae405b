"""Where the data is: a journal's segments as lines, and the tables in a warehouse."""
