"""The project held against its peers: what the best of them test, done here."""
