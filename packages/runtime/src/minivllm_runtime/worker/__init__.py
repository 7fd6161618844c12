"""Steps on the device: input batches, KV tensors, CUDA graphs, the model runner."""
