"""For the frameworks that Celery apps live in. Nothing else imports them."""
