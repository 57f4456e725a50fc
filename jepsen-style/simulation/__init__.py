"""Whole clusters in one process, under faults, with every promise checked while they run; all from one seed."""
