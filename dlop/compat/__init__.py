"""Compatibility with other operators: legacy flags, environment variables and metrics."""
