"""Calls of functions in what a model writes: one file per way of writing them."""
