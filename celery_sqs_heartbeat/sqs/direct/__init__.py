"""Makes a keeper's batch calls with less CPU than boto3: from the pattern of a call by boto3."""
