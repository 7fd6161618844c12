"""Workloads and benchmarks of minivllm against its peers."""
