"""The embedded cluster: an API server and what runs beside it, in one process and on loopback only."""
