"""Replicated state machines over the partitions of an internal topic, the common base of all coordinators."""
