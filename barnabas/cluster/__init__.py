"""Clusters of processes on this machine."""
