"""Records events of messages and leases, for people and for analysis.

Every event is a line of JSON in a segment, which is a plain file. Full segments are compressed,
and may be uploaded to S3. See `docs/journal.md`.
"""
