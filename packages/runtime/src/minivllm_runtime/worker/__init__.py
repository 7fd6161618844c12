"""Everything that owns device tensors: KV cache, request states, input batches, the model runner."""
