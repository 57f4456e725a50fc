"""librdkafka's clients, each in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clients.client import ClientError
from clients.confluent_client import check
from clients.program_client import Program, ProgramLibrary

HOME = Path(__file__).resolve().parents[1]


def classified(answer: Mapping[str, Any], definite_names: frozenset[str]) -> ClientError:
    """The program has sent its last response."""
    del definite_names
    return ClientError(answer["error"], answer["text"], definite=answer["definite"], fatal=answer["fatal"])


def library(now_ns: Callable[[], int]) -> ProgramLibrary:
    """Makes them. LibraryMissing if there is no librdkafka."""
    check()
    path = os.pathsep.join([str(HOME), str(HOME.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "clients.confluent_program"]
    return ProgramLibrary(Program("confluent", command, asdict, classified, {"PYTHONPATH": path}), now_ns)
