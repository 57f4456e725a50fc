"""Attacks of an anonymous client on a cluster of processes, and what they cost it: `python jepsen-style attack`."""
