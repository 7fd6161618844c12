"""Paged KV-cache block allocator with prefix caching, standard library only."""
