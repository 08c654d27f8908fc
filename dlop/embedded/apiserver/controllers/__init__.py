"""Controllers that kube-controller-manager runs in a real cluster: garbage collection and namespaces."""
