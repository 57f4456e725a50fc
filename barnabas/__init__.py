"""What users see: the client, the cluster driver and the command line."""
