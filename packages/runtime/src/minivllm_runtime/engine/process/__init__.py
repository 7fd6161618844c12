"""An engine in a process of its own, for any number of clients: tokenizing, text and HTTP never stall a step.

client (event loop)                            engine process
RemoteConnection    ── zmq over ipc, msgpack ──►  EngineServer ── EngineCore
"""
