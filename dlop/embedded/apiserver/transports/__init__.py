"""Transports of the API server: HTTP on the loopback, and in-process without sockets."""
