"""The kinds of kubeflow.org/v1, compatible with Kubeflow's training operator. Shared behavior is in `base`."""
