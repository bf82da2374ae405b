"""Random work under random harm on real workers, and an audit of every message."""
