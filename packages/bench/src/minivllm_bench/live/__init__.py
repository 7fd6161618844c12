"""The real engine under timed traffic: how long its steps take, and whether a simulation of it tells the truth."""
