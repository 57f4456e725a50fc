"""Every message of the protocol: a module per request and response pair, and per internal log or file."""
