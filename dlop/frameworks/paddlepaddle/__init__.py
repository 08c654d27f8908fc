"""The PaddleJob and TrainingJob of paddlepaddle.org/v1, compatible with two early operators."""
