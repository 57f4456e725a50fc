"""Core: a message that passed a proxy, as an entry of a trace and as a line for people.

An entry is a JSON object: `time` (ms since the epoch), `connection`, `broker`, `node_id`, `client`, `direction`, `api`,
`version`, `correlation_id`, `bytes`; `rule` if one struck; `errors` of a response; `body`, decoded and bounded; and
`frame`, the request as base64, from which it can be sent again.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from barnabas.fault_proxy.answering import read_answer
from barnabas.fault_proxy.dialogue import Seen
from barnabas.fault_proxy.endpoints import spec_of_key
from barnabas.fault_proxy.requests import MOST_ELEMENTS, Asked, read_request
from barnabas.fault_proxy.shown import MOST_VALUES, errors_in, has_secrets, names_secret_configs, shown
from barnabas.fault_proxy.topics import TopicNames, topics_of
from barnabas.times import clock_text

MOST_FRAME_BYTES = 1 << 20
"""The default for the longest request that a trace keeps as bytes."""
MOST_TOPICS = 5


@dataclass
class Entry:
    """A message with the time at which it was seen."""

    seen: Seen
    time_ms: int
    node_id: int = -1

    @cached_property
    def asked(self) -> Asked:
        """The request. For a response it has the head alone."""
        seen = self.seen
        if seen.is_request:
            return read_request(seen.frame)
        return Asked(b"", (seen.api_key, seen.version, seen.correlation_id), seen.client_id)

    @cached_property
    def message(self) -> Any:
        """The decoded body; None if it is not known here, or has more than `MOST_ELEMENTS`."""
        if self.seen.is_request:
            return self.asked.decoded if self.asked.is_readable else None
        spec = self.asked.spec
        return None if spec is None else read_answer(self.seen.frame, spec, self.seen.version, MOST_ELEMENTS)

    @property
    def api(self) -> str:
        return str(self.seen.api_key) if self.asked.spec is None else self.asked.spec.name

    def as_json(self, most_frame_bytes: int = 0, most_values: int = MOST_VALUES) -> dict[str, Any]:
        seen = self.seen
        written: dict[str, Any] = {
            "time": self.time_ms,
            "connection": seen.connection,
            "broker": seen.broker,
            "node_id": self.node_id,
            "client": seen.client_id,
            "direction": "request" if seen.is_request else "response",
            "api": self.api,
            "version": seen.version,
            "correlation_id": seen.correlation_id,
            "bytes": len(seen.frame),
        }
        if seen.rule is not None:
            written["rule"] = seen.rule.number
        if self.message is not None:
            if not seen.is_request and (errors := errors_in(self.message, seen.version)):
                written["errors"] = errors
            written["body"] = shown(self.message, seen.version, most_values)
        if seen.is_request and len(seen.frame) <= most_frame_bytes and not self.is_secret:
            written["frame"] = base64.b64encode(seen.frame).decode()
        return written

    @property
    def is_secret(self) -> bool:
        """True if no trace may have its bytes."""
        spec = spec_of_key(self.seen.api_key)  # of any version, also one that is not known here
        if spec is None:
            return False
        if has_secrets(spec.request_type() if self.seen.is_request else spec.response_type()):
            return True
        return self.seen.is_request and self.message is not None and names_secret_configs(self.message)

    def line(self, topics: TopicNames) -> str:
        """One line: time, connection, client, direction, API, version, topics or errors, rule."""
        seen = self.seen
        clock = clock_text(self.time_ms)
        words = [
            clock,
            f"#{seen.connection}",
            seen.client_id or "-",
            ">" if seen.is_request else "<",
            f"{self.api} v{seen.version}",
            *self._about(topics),
        ]
        if seen.rule is not None:
            words.append(f"[rule {seen.rule.number}]")
        return " ".join(words)

    def _about(self, topics: TopicNames) -> list[str]:
        if self.message is None:
            return []
        if not self.seen.is_request:
            return errors_in(self.message, self.seen.version)
        names = sorted(topics_of(self.message, self.seen.version, topics.name_of))
        more = [f"and {len(names) - MOST_TOPICS} more"] if len(names) > MOST_TOPICS else []
        return [*names[:MOST_TOPICS], *more]
