"""A development node loads rooms in its worker thread: an import in the event loop would hold up every client."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas import sync
from barnabas.cluster.local import code_environment

PROGRAM = """
import sys, threading
from barnabas.runtime import process

loop = threading.get_ident()

class Witness:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("barnabas."):
            print("in the loop" if threading.get_ident() == loop else "in a thread", name, flush=True)

def served():
    settle()
    sys.meta_path.insert(0, Witness())

settle = process.settle_memory
process.settle_memory = served
sys.argv = ["barnabas", "dev", "--port", "0"]
from barnabas.cli.main import main
main()
"""
CHEAP = ("barnabas.protocol.messages.",)
"""The message of a request is loaded where it is decoded: less than a millisecond."""


@contextmanager
def watched_node(found: dict[str, list[str]]) -> Iterator[str]:
    """The bootstrap servers of a node; at the end `found` has the modules that it loaded since it was ready."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=code_environment()
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[0]
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
        for line in printed.splitlines():
            where, _, name = line.rpartition(" ")
            found.setdefault(where, []).append(name)
    finally:
        process.kill()
        process.wait()


def test_no_room_is_loaded_in_the_event_loop() -> None:
    found: dict[str, list[str]] = {}
    with watched_node(found) as servers:
        with sync.Producer(bootstrap_servers=servers) as producer:
            producer.send("orders", b"1")
        with sync.Consumer("orders", bootstrap_servers=servers, group_id="classic", auto_offset_reset="earliest") as it:
            assert next(iter(it)).value == b"1"
        with sync.Producer(bootstrap_servers=servers, transactional_id="t") as producer, producer.transaction():
            producer.send("orders", b"2")
        with sync.Admin(bootstrap_servers=servers) as admin:
            admin.list_groups()
            admin.describe_cluster()
            admin.describe_log_dirs()
        with sync.ShareConsumer("orders", bootstrap_servers=servers, group_id="shared") as shares:
            while not shares.assignment():
                shares.poll(timeout_ms=100)
    rooms = {name.split(".")[3] for name in found["in a thread"] if name.startswith("barnabas.broker.rooms.")}
    assert rooms >= {"groups", "transactions", "group_admin", "cluster_admin", "records_admin", "shares"}
    assert [name for name in found.get("in the loop", ()) if not name.startswith(CHEAP)] == []
