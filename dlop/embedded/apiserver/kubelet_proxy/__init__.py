"""Proxies logs, exec, attach and port-forward of pods to the kubelets."""
