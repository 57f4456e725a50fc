"""Patterns match what RE2 matches, and cannot be made to hang."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.patterns import Pattern, PatternError

MATCHES = [
    ("", ""),
    ("orders", "orders"),
    ("orders|payments", "payments"),
    ("orders-.*", "orders-eu"),
    (".*-(eu|us)", "orders-eu"),
    ("(?:a|b)+c?", "abab"),
    ("(?P<name>x)(?<other>y)", "xy"),
    ("a{2}", "aa"),
    ("a{2,}", "aaaa"),
    ("a{0,2}b", "aab"),
    ("a{,2}", "a{,2}"),
    ("x{", "x{"),
    ("[a-c1_-]+", "a-c_1"),
    ("[^a-c]+", "xyz"),
    ("[]a]+", "]a]"),
    ("[\\d.]+", "10.5"),
    ("[[:alpha:]]+[[:^digit:]]", "abc-"),
    ("\\d+\\D\\w\\W\\s\\S", "12x_- y"),
    ("\\Qa.b\\E+", "a.bbb"),
    ("\\x41\\x{1F600}\\101", "A\U0001f600A"),
    ("\\.\\\\\\-", ".\\-"),
    ("(?i)ORDERS-[a-z]", "orders-X"),
    ("(?i:A)b", "ab"),
    ("a(?i)b|C", "c"),
    ("^orders$", "orders"),
    ("\\Aorders\\z", "orders"),
    ("(?m)a$\n^b", "a\nb"),
    ("(?s).", "\n"),
    ("\\bword\\b-\\Bx?", "word-"),
    ("\\p{Lu}\\pL\\P{Lu}", "Äbc"),
    ("(a*)*", "aaaa"),
    ("(|a)+", "aaa"),
    ("a??b", "b"),
]

DOES_NOT = [
    ("orders", "orders-eu"),
    ("orders", "my-orders"),
    ("a|b", "ab"),
    (".", "\n"),
    ("[^a]", "a"),
    ("\\bx", "-x"),
    ("(?-i)A", "a"),
    ("a$b", "ab"),
    ("a{2}", "aaa"),
]

REFUSED = [
    "(",
    ")",
    "a)",
    "[a",
    "[z-a]",
    "*a",
    "a**",
    "a{2}{3}",
    "a{1001}",
    "a{3,2}",
    "((a{100}){100}){100}",
    "(" * 200 + ")" * 200,
    "\\1",
    "(?=a)",
    "(?<!a)",
    "(?P=name)",
    "\\",
    "\\y",
    "\\p{Nothing}",
    "[[:nothing:]]",
    "(?z)",
    "(?",
    "\\x{110000}",
]


@pytest.mark.parametrize(("pattern", "text"), MATCHES)
def test_what_matches(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text)


@pytest.mark.parametrize(("pattern", "text"), DOES_NOT)
def test_what_does_not(pattern: str, text: str) -> None:
    assert not Pattern(pattern).matches(text)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


def test_a_hostile_pattern_does_not_hang() -> None:
    began = time.monotonic()
    assert not Pattern("(a+)+(a|aa)*(.*.*.*)*b").matches("a" * 2000)
    assert time.monotonic() - began < 2


atoms = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "\\w", "^", "$", "\\b"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(pattern=patterns, text=st.text("abc-", max_size=8))
def test_it_agrees_with_another_engine(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


@given(st.text("ab()[]{}*+?|\\^$.-,:PQEpxd<>=!i012", max_size=20))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        Pattern(text).matches("ab012")
    except PatternError as error:
        assert str(error)
