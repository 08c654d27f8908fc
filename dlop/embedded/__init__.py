"""An embedded cluster: API server, controllers, scheduler and kubelet in one process, on the loopback only."""
