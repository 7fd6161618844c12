"""Continuous-batching scheduler, step loop and simulator, standard library only."""
