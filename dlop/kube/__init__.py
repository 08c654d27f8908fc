"""Kubernetes client library: client, informers, work queue, expectations and leader election. It is independent of training jobs."""
