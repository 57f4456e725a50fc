"""A proxy between nodes, and between clients and nodes, that cuts, slows, loses, and holds single messages back.

`frames.py`, `rules.py` and `stream.py` are a core: bytes and the time go in, bytes that may leave come out. `server.py`
and `shell.py` are a process around it; `driver.py` starts that process and sends it commands.
"""
