"""Composable parts of a DLJob."""
