"""Virtual slices, how values lie on them, and how values come to them, leave them and move between them."""
