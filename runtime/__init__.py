"""Network, disk, clocks and randomness of a node, real and simulated, and the server and client that stand on them."""
