"""Shows in a minute what the package does: `python -m demo` in the checkout."""
