"""Runs payments.py, and kills it with SIGKILL: `killed_at.py BOOTSTRAP DSN LAST STEP COUNT`, at that step for the COUNTth
time."""

from __future__ import annotations

import os
import signal
import sys

import payments

bootstrap_servers, dsn, last, fatal, count = sys.argv[1:]
left = int(count)


def step(name: str) -> None:
    global left
    left -= name == fatal
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


payments.run(bootstrap_servers, dsn, int(last), step)
