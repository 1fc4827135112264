"""Measures this checkout beside another commit of the same project; see ``__main__``."""
