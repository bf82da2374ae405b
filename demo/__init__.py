"""A demonstration of the package, in two minutes: run `python -m demo` in the checkout."""
