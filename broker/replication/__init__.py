"""Replication: one leader per partition, followers that pull, and the high watermark between them."""
