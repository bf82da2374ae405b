"""Whatever comes from outside: nothing raises, nothing is lost, nothing is stuck."""
