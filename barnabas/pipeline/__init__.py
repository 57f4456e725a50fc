"""Spark reads topics and writes them: batch and streaming, exactly once.

Whatever executors and Spark's own Python workers import of this knows no trio: they speak to brokers over blocking
sockets.
"""
