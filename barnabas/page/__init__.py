"""The page: a cluster as people see it, live, and the buttons that break it.

`asking.py` asks a node over HTTP, `seeing.py` makes of the answers what is shown, `feed.py` hands it to whoever
looks, `watch.py` does all that while somebody does; `server.py` serves it, `control.py`, `load.py` and `tour.py` do
things to the cluster. Nodes import nothing of this.
"""
