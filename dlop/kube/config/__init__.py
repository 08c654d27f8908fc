"""The way to a cluster: where it is, and what lets a request in."""
