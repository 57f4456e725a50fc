"""The rooms of a broker: each makes the handlers of some APIs, and the parts that only they need.

A broker for development loads a room with the first request for one of its APIs (`runtime/rooms.py`). So nothing
imports a room: `broker/dispatch.py`, `broker/parts.py` and `broker/coordination.py` have their names. A room imports
all that its requests need, also what is made later by its name: that is loaded in the worker, then, and not in a step
of the event loop.
"""
