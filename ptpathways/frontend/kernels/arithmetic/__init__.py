"""Arithmetic of single elements, and the types in which it is done and which results have."""
