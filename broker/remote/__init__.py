"""Tiered storage on one broker (KIP-405)."""
