"""Client-side operations on jobs of any kind: find, view, submit, update, wait, read logs."""
