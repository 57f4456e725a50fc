"""The real object stores: a directory, and servers that speak the S3 protocol. `opening.py` opens one by its URL."""
