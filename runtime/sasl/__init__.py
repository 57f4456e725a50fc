"""SASL over connections: the listener's side, and that of a channel. The exchanges are in `protocol.sasl`."""
