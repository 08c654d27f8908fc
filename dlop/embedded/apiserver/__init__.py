"""An in-memory API server that behaves like kube-apiserver in everything that controllers and `kubectl` can observe."""
