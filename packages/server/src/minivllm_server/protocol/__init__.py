"""The OpenAI wire protocol as pydantic models: what may be sent, what is answered."""
