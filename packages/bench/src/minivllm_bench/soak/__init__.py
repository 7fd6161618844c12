"""`minivllm-bench soak`: hours of a server's life in minutes, every answer checked."""
