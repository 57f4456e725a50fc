"""Serves clients and follows leaders."""
