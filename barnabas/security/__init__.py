"""Tools for the operator of a secured cluster."""
