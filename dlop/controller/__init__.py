"""The loop: what the caches show goes into the engine, and what the engine plans goes to the server."""
