"""The story of a partition, a group, a transaction, a node or the quorum, as all nodes together tell it."""
