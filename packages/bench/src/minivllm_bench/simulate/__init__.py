"""The command `minivllm-bench simulate`: the engine's own scheduler on a virtual clock."""
