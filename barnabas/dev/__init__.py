"""A whole cluster in one node, for development and tests: `barnabas dev` and `barnabas.embedded()`."""
