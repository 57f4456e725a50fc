"""The promises of a cluster, each checked at the moment when it could break."""
