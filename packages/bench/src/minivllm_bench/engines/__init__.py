"""Engines under measurement, behind one small interface; heavy imports wait until one is opened."""
