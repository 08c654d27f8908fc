"""Public test kit: the operator on an embedded cluster, with a scripted kubelet, virtual time and fault injection."""
