"""Core: segments of a log in a remote store (KIP-405): their records, their lineage, and what to do with them."""
