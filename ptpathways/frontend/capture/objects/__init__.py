"""What a captured step can reach from Python, and what is in it."""
