"""Helpers for all other packages: time, numbers, words. Imports only `errors` from this project."""
