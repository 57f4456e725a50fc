"""HTTP for those without a Kafka client: the shapes of Confluent's REST Proxy v3, and records as server-sent events."""
