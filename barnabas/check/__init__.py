"""`barnabas check`: a user's application between two topics, under faults, and a verdict on what it promises.

`judge.py`, `schedule.py`, `story.py` and the files of values beside them are cores. `run.py` is the shell: it starts a
cluster (or uses another one), feeds the input, runs the instances, carries out the faults, and asks the cores.
"""
