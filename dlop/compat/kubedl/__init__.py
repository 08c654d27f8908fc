"""Compatibility with KubeDL's operator."""
