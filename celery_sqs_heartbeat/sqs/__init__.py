"""Calls SQS with boto3: clients, batch calls and the meaning of answers."""
