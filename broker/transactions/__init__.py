"""Transactions: coordinator, transaction markers, and verification of transactional writes."""
