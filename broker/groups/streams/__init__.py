"""Streams groups (KIP-1071): topology, assignment of tasks, membership."""
