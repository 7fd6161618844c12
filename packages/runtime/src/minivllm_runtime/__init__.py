"""Models, weights, sampling and the inference engine of minivllm."""
