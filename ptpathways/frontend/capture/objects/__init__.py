"""What a captured step can reach: the walk over it, the guards, and what runs in a recorded call."""
