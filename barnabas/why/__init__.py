"""`barnabas why`: the story of a partition, group, transaction, node or quorum, from the decisions of all nodes."""
