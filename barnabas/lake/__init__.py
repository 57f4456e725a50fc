"""Topics as Iceberg tables: a process beside the cluster, each committed record exactly once."""
