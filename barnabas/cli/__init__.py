"""The `barnabas` command."""
