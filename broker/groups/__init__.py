"""The group coordinator's cores: who is in a group, who reads what, and how far they have come."""
