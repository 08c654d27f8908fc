"""Kubernetes plumbing: client, informers, work queue, expectations and lease. It knows nothing of training jobs."""
