"""Cluster configuration: the address of an API server and the credentials for it, from a kubeconfig or a service account."""
