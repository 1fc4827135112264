"""One traced call of a captured step: what it was given, what it did, and what it left behind."""
