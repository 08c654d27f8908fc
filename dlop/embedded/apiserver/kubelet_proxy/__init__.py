"""The way from the API server to the nodes: logs, exec, attach and port-forward are asked of them."""
