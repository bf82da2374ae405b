"""How the keeper's cost grows with its leases, and what its calls cost beside boto3's."""
