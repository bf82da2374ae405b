"""Looks at a keeper from outside: metrics and the status page. Nothing else imports it."""
