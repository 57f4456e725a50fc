"""The doors to the world: network, disk, clocks and chance, each an interface with a real thing and a simulated twin."""
