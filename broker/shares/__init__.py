"""Share groups (KIP-932): share partitions on their leaders, and the durable state of each."""
