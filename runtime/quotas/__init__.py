"""Quotas: how much clients may use of a node, and how long they are held back (KIP-13, 124, 219, 599, 612)."""
