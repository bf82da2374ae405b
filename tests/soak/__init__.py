"""Kills and disturbs real workers at random, and accounts for every message afterwards."""
