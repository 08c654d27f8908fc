"""The public testing kit: operator, embedded cluster, scripted kubelet and virtual time."""
