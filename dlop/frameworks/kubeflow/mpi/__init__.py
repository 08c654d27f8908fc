"""The MPIJob of kubeflow.org/v1: a launcher that starts processes in its workers with `kubectl exec`."""
