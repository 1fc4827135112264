"""Functions and programs: what is traced once and run on slices, with futures between them (paper 3)."""
