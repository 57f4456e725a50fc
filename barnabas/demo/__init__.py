"""The demonstration: a steady load, something terrible, and exact accounts of what became of every record.

`ledger.py` counts, `workload.py` writes and reads, `watch.py` asks the cluster how it is, `scenario.py` tells the
stories, `view.py` draws, `play.py` puts them together.
"""
