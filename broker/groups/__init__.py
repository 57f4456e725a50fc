"""Cores of the group coordinator: membership, assignments and committed offsets."""
