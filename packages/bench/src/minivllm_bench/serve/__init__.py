"""`minivllm-bench serve`: the load on a server, from requests on the wire to latencies."""
