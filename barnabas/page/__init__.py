"""The page: a live view of a cluster in the browser, with buttons for fault injection.

`watch.py` polls the nodes while a browser is connected, `sight.py` computes what is shown, `event_groups.py` groups
events, `feed.py` distributes them, `server.py` serves them; `control.py`, `load.py` and `tour.py` act on the cluster.
"""
