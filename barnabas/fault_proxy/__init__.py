"""A proxy of the Kafka protocol that injects faults: before any cluster, and between the nodes of the laboratory.

`frames.py` cuts bytes into messages, `rules.py` and `outlet.py` break links. On these two stand `stream.py` with
`server.py`, which stand between nodes whose ports are known (`driver.py` starts them as a process), and `dialogue.py`
with `listeners.py`, which stand before somebody's cluster, rewrite its addresses and fail single requests.
"""
