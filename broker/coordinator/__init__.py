"""What every coordinator stands on: a state machine over one partition of an internal topic."""
