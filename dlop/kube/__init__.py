"""Kubernetes client library: client, informers, work queue, expectations and leader election. It knows nothing of training jobs."""
