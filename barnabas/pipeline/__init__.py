"""Reading and writing topics with Spark: batch and streaming, exactly once.

Modules that executors and Spark's Python workers import do not import trio: they talk to brokers over blocking sockets.
"""
