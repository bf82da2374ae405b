"""Talks to SQS by boto3: clients, batch calls, and what their answers mean."""
