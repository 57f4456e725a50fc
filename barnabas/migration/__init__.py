"""Moves a running cluster onto other nodes, one step at a time (`barnabas migrate`)."""
