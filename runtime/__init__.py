"""The doors to the world: network, disk, clocks and chance, each with a real thing and a simulated twin."""
