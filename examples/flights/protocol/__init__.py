"""The project's own format of a position report."""
