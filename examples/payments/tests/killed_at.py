"""Runs payments.py, and kills it with SIGKILL at a step: `killed_at.py BOOTSTRAP DSN LAST STEP COUNT`.

It survives the step COUNT - 1 times.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter

import payments

bootstrap_servers, dsn, last, fatal, count = sys.argv[1:]
taken: Counter[str] = Counter()


def step(name: str) -> None:
    taken[name] += 1
    if taken[fatal] == int(count):
        os.kill(os.getpid(), signal.SIGKILL)


payments.run(bootstrap_servers, dsn, int(last), step)
