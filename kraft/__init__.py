"""Agrees on the metadata log, and decides what goes into it."""
