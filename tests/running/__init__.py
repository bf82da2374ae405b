"""How the groups of tests are run by `make`, and what they cost."""
