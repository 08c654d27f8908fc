"""A node that runs pods as processes of this machine. To an API server it is an ordinary client, as a kubelet is."""
