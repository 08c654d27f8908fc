"""The operator process: settings, flags, wiring, health endpoints, logging and entry point."""
