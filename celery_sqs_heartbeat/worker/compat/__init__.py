"""What the heartbeat needs of Celery, kombu and billiard, and whether it is there."""
