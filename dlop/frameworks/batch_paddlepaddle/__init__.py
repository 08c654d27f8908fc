"""The PaddleJob of batch.paddlepaddle.org/v1, compatible with the paddle-operator of PaddleFlow."""
