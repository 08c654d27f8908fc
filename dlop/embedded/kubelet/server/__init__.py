"""The kubelet's HTTPS server: logs, exec, attach and port-forward, as API servers call them."""
