"""How a position report is written in a record: the project's own format."""
