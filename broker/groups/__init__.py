"""Core: the group coordinator's membership, assignments and committed offsets."""
