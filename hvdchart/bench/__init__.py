"""Measures how a training's speed grows with the number of workers."""
