"""Transports of the API server: HTTP on loopback, and in-process without sockets."""
