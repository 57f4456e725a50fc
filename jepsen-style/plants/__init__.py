"""Broken brokers and controllers, by which the checkers are tried."""
