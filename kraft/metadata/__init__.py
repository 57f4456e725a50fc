"""Core: the cluster's metadata: an immutable picture of it, and how records of the metadata log change that
picture."""
