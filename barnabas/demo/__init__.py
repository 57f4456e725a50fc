"""The demonstration: faults under a steady load, with an exact account of every record.

`ledger.py` accounts, `workload.py` produces and consumes, `status_watch.py` polls the cluster, `scenario.py` has the
scripts of faults, `view.py` renders, `play.py` runs all of them.
"""
