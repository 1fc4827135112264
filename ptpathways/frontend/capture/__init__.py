"""Captured steps: a training step's calls, traced a few times and then replayed (paper 4.2)."""
