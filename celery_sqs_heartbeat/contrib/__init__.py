"""Integrations with web frameworks. No other module imports them."""
