"""A schema registry with Confluent's REST interface, kept in the compacted topic `_schemas`."""
