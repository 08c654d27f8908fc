"""An embedded cluster: API server, controllers, scheduler and kubelet in one process, on loopback only."""
