"""The ways in: over HTTP on the loopback, and without sockets from the same process."""
