"""Rules from a YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.rules_file import parse_rules, read_rules_file


def test_rules_and_links_are_lines_or_objects() -> None:
    found = parse_rules(
        """
        rules:
          - Produce topic=orders error=NOT_LEADER_OR_FOLLOWER times=2
          - {api: Fetch, client: board-*, response_delay_ms: 500, every: 10}
        links:
          - broker=1 cut=true
          - {direction: responses, bytes_per_second: 10000}
        """,
        "faults.yaml",
    )
    assert [rule.text for rule in found.rules] == [
        "Produce topic=orders error=NOT_LEADER_OR_FOLLOWER times=2",
        "Fetch 'client=board-*' response_delay_ms=500 every=10",
    ]
    assert [(link.broker, link.direction, link.cut, link.bytes_per_second) for link in found.links] == [
        ("1", "both", True, 0),
        ("", "responses", False, 10_000),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must have the lists rules and links, or one of them; got nothing"),
        ("- a", "got list"),
        ("rule: []", "got 'rule'"),
        ("rules: {api: Produce}", "rules must be a list of at most 1000; got dict"),
        ("rules: [7]", "rule 1: must be a line or an object with api; got 7"),
        ("rules: [{api: Produce, drop: request}, {api: Produc, drop: request}]", "rule 2: api must be the name"),
        ("rules: [{topic: orders, drop: request}]", "rule 1: api is missing"),
        ("rules: [{api: Produce, drop: request, 7: x}]", "rule 1: names must be texts"),
        ("rules: [{api: Produce, times: two, drop: request}]", "times must be a valid integer"),
        ("links: [{broker: 1}]", "link 1: needs one of cut, latency_ms"),
        ("links: [{loss: 2}]", "link 1: loss must be less than 1; got 2"),
        ("links: [{direction: up, cut: true}]", "direction must be both, requests or responses; got 'up'"),
        ("rules: [", "while parsing"),
        ("rules: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(WrongArgument) as refused:
        parse_rules(text, "faults.yaml")
    message = str(refused.value)
    assert message.startswith("faults.yaml: ") and reason in message and "\n" not in message


@given(st.text(max_size=80))
def test_any_text_is_rules_or_refused(text: str) -> None:
    try:
        parse_rules(text, "faults.yaml")
    except WrongArgument as error:
        assert "\n" not in str(error)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongArgument, match="No such file"):
        read_rules_file(tmp_path / "none.yaml")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1 << 20) + b"##")
    with pytest.raises(WrongArgument, match="larger than"):
        read_rules_file(large)
