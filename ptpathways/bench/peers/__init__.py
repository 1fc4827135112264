"""What ptpathways is compared with: one file per rival system, run as a process of its own.

Only here may this room import a rival; nothing of ptpathways but the harness and the models is used by them.
"""
