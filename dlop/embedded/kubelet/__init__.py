"""A kubelet that runs pods as processes of this machine. It is an ordinary client of the API server."""
