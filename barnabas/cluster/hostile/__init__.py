"""A hostile client: well-formed requests of every API, drawn from a seed. It keeps away from what other clients own."""
