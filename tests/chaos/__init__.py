"""Faults against a real cluster that trains: a seeded campaign, and a table of what came of them.

`plan` decides which fault comes when, `faults` are the verbs, `cluster` and `place` what they are done to, `loop` the
program that trains, `judge` says what came of one, `report` writes the table. `python -m tests.chaos --help`.
"""
