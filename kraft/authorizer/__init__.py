"""Core: access control by lists that are kept in the metadata log (KIP-11, KIP-290, KIP-801)."""
