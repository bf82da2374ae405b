"""The project compared with its peers: the scenarios that the best of them test."""
