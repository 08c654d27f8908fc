"""Compatibility with the Kubeflow training operator."""
