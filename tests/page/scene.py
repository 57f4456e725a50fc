"""Events of a cluster with three brokers and three controllers: a load, a killed leader, its return."""

from __future__ import annotations

import copy
from typing import Any

from tests.page.fake_page import FakePage

BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLERS = ("controller-101", "controller-102", "controller-103")
TOPIC = "demo"
PARTITIONS = 6


def id_of(name: str) -> int:
    return int(name.rpartition("-")[2])


HELLO: dict[str, Any] = {
    "allow_faults": True,
    "bootstrap": "127.0.0.1:9092",
    "nodes": [{"name": name, "id": id_of(name), "role": name.partition("-")[0]} for name in (*CONTROLLERS, *BROKERS)],
    "topic": TOPIC,
    "tour": True,
    "links": True,
    "apache_kafka": {"kill leader": {"gap_ms": 10400, "source": "docs/benchmarks.md"}},
}


def decision(number: int, at_ms: int, kind: str, subject: str, answer: str) -> dict[str, Any]:
    return {
        "number": number, "at_ms": at_ms, "node": "controller-101", "kind": kind, "subject": subject,
        "also": ["broker 2"], "told": answer, "cause": answer.partition(": ")[2],
        "facts": {"leader": 3, "leader_epoch": 12, "isr": [3, 1], "offset": 4711, "reason": None},
    }  # fmt: skip


class Scene:
    """Says things to a fake page; each method is one step of a story."""

    def __init__(self, page: FakePage, at_ms: int) -> None:
        self.page = page
        self.at_ms = at_ms
        self.states = dict.fromkeys(CONTROLLERS, "follower") | dict.fromkeys(BROKERS, "running")
        self.states["controller-101"] = "leader"
        self.metadata_end = 4711
        self.end = 120_000
        self.lag = dict.fromkeys(BROKERS, 0)
        self.load: dict[str, Any] = {
            "running": True, "acked_per_second": 1840, "read_per_second": 1838, "p50_ms": 6.2, "p99_ms": 18.4,
            "acked": 1_234_567, "read": 1_234_550, "lost": 0, "duplicated": 0, "out_of_order": 0,
            "longest_gap_ms": 42, "undecided": 12,
        }  # fmt: skip
        self.cut: list[list[str]] = []
        self.numbers = 0

    def begin(self) -> None:
        self.page.say("hello", HELLO)
        for step in range(60, 0, -1):
            self.tick(self.at_ms - step * 500)

    def tick(self, at_ms: int) -> None:
        """Half a second of a cluster at work."""
        self.at_ms = at_ms
        self.metadata_end += 1
        self.end += 150
        noise = at_ms // 500 * 7919 % 101
        self.load |= {
            "at_ms": at_ms, "acked": self.load["acked"] + 920, "acked_per_second": 1790 + noise,
            "read_per_second": 1780 + noise, "p50_ms": 6 + noise / 50, "p99_ms": 16 + noise / 7,
        }  # fmt: skip
        self.say_cluster()
        self.say_partitions()
        self.page.say("load", self.load)

    def cluster(self) -> dict[str, Any]:
        nodes = [
            {
                "name": name, "id": id_of(name), "role": name.partition("-")[0], "state": state, "epoch": 5,
                "metadata_end": None if state == "dead" else self.metadata_end,
                "metadata_high_watermark": None if state == "dead" else self.metadata_end - 1,
                "told": "its process has ended" if state == "dead" else "",
            }
            for name, state in self.states.items()
        ]  # fmt: skip
        quorum = {
            "leader": 101, "epoch": 5, "high_watermark": self.metadata_end - 1, "log_end_offset": self.metadata_end
        }  # fmt: skip
        topics = [{"name": TOPIC, "partitions": PARTITIONS}, {"name": "flights", "partitions": 12}]
        return {
            "at_ms": self.at_ms, "nodes": nodes, "quorum": quorum, "topics": topics, "cut": self.cut, "away": False
        }  # fmt: skip

    def say_cluster(self) -> None:
        self.page.say("cluster", self.cluster())

    def partitions(self) -> dict[str, Any]:
        alive = [id_of(name) for name in BROKERS if self.states[name] != "dead"]
        partitions = []
        for index in range(PARTITIONS):
            order = [1 + (index + place) % 3 for place in range(3)]
            isr = [broker for broker in order if broker in alive]
            leader = isr[0] if isr else None
            replicas = []
            for broker in order:
                gone = broker not in alive
                end = self.end - self.lag[f"broker-{broker}"] - (0 if broker == leader else 4)
                state = "gone" if gone else "leader" if broker == leader else "follower"
                replicas.append({
                    "broker": broker, "log_start_offset": 0, "log_end_offset": None if gone else end,
                    "high_watermark": None if gone else end - 8, "state": state,
                })  # fmt: skip
            partitions.append({
                "index": index, "leader": leader, "leader_epoch": 3, "isr": isr, "replicas": replicas
            })  # fmt: skip
        return {"at_ms": self.at_ms, "topic": TOPIC, "partitions": partitions}

    def say_partitions(self) -> None:
        self.page.say("partitions", self.partitions())

    def mark(self, kind: str, subject: str, text: str, at_ms: int | None = None) -> dict[str, Any]:
        """Says it, and gives it."""
        self.numbers += 1
        at_ms = self.at_ms if at_ms is None else at_ms
        mark = {
            "number": self.numbers, "at_ms": at_ms, "kind": kind, "subject": subject, "text": text,
            "node": "controller-101",
            "decision": None if kind == "fault" else decision(self.numbers, at_ms, kind, subject, text),
        }  # fmt: skip
        self.page.say("mark", copy.deepcopy(mark))
        return mark

    def kill(self, name: str) -> None:
        """The leader of two partitions is killed, and others take them over 640 ms later."""
        broker = id_of(name)
        self.mark("fault", f"broker {broker}", f"{name} is killed")
        self.states[name] = "dead"
        for index in (1, 4):
            answer = (
                f"leader of {TOPIC}-{index} moved {broker} -> 3 in epoch 12: broker {broker}'s connection was refused "
                "after its process ended; 3 was first in the ISR"
            )
            self.mark("election", f"{TOPIC}-{index}", answer, self.at_ms + 610)
        for index in range(PARTITIONS):
            text = f"ISR of {TOPIC}-{index} shrank to [3, 1]: broker {broker} is fenced"
            self.mark("isr", f"{TOPIC}-{index}", text, self.at_ms + 612)
        self.load |= {"longest_gap_ms": 640}
        self.tick(self.at_ms + 700)

    def start(self, name: str) -> None:
        self.mark("fault", f"broker {id_of(name)}", f"{name} is started")
        self.states[name] = "running"
        self.tick(self.at_ms + 500)
