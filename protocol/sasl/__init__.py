"""Core: SASL mechanisms, as servers and clients of Kafka exchange them. Bytes in, bytes out; no connection."""
