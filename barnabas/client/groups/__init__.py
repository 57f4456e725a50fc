"""Groups: members of both kinds, who coordinates them, who is assigned what, and the offsets they commit.

Cores but for `coordinators.py` and `offsets.py`, which speak to the coordinator.
"""
