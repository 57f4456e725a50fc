"""Transactions: their coordinator, the markers that end them, and the check of who may write in one."""
