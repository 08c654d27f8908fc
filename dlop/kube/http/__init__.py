"""HTTP/1.1 transport to a real API server: connections, a connection pool and the `Transport` implementation."""
