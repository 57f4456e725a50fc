"""Core: the Raft of the metadata log: pure values and decisions, no bytes, no clocks, no sockets."""
