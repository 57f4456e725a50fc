"""Core: schemas in Avro, JSON Schema and Protobuf: parsed, written in one form, and compared."""
