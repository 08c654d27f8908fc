"""What MPI jobs of several groups have in common: a launcher that starts processes in its workers with `kubectl exec`."""
