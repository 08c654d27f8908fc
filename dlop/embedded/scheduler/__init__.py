"""A scheduler for a cluster with one node, with the events and conditions of kube-scheduler."""
