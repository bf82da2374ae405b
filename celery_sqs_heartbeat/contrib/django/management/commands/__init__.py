"""Commands of `manage.py`, each by its module's name."""
