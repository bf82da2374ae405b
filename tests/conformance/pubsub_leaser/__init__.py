"""Scenarios of the leaser of the Google Cloud Pub/Sub client for Python."""
