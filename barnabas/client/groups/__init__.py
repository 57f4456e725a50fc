"""Consumer groups: members of both protocols, assignors, coordinator lookup, committed offsets.

All files are cores except `coordinators.py`, `offsets.py`, `participant.py` and `topic_directory.py`.
"""
