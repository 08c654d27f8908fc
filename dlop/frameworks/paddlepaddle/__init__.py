"""The PaddleJob of paddlepaddle.org/v1, compatible with the early paddle-k8s-operator."""
