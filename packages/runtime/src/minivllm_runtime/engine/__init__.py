"""The engine core, which knows ids only, and its clients, which know text."""
