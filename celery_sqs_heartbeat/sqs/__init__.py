"""Calls SQS with boto3: clients, long polls, batch calls and the meaning of answers."""
