"""The kubelet's HTTP API: logs, exec, attach and port-forward, as an API server calls them."""
