"""Core: settings of nodes and topics under Apache Kafka's own names; does no I/O."""
