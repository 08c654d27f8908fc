"""dlop."""
