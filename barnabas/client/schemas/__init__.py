"""Serializers and deserializers over a schema registry. What they need is loaded at their first use."""
