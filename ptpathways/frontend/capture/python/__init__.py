"""Python itself, as captured steps see it: whose code and classes are, what code mentions, and what is in objects."""
