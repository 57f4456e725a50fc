"""The texts of sasl.jaas.config."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.sasl.jaas import JaasError, parse_entries, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.feature("SE-03")
def test_the_line_of_the_documentation() -> None:
    module = parse_jaas(f'{PLAIN} required\n username="admin" password="admin-secret"\n user_admin="admin-secret";')
    assert (module.name, module.control_flag) == (PLAIN, "required")
    assert module.options == {"username": "admin", "password": "admin-secret", "user_admin": "admin-secret"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"two words"', "two words"),
        ("'single'", "single"),
        ("word", "word"),
        ("a.b-c_d$1", "a.b-c_d$1"),
        ('"a;b=c"', "a;b=c"),
        (r'"a\"b\\c"', 'a"b\\c'),
        (r'"\n\t\101\7z"', "\n\tA\7z"),
        (r'"\400"', " 0"),
        ("größe", "größe"),
        ('""', ""),
    ],
)
def test_values(text: str, value: str) -> None:
    assert parse_jaas(f"a.B required key={text};").options == {"key": value}


def test_comments_and_several_modules() -> None:
    entries = parse_entries("/* first */ a.B Required k=v; // rest of the line\n c.D optional; /e\n")
    assert [(each.name, each.control_flag, each.options) for each in entries] == [
        ("a.B", "required", {"k": "v"}),
        ("c.D", "optional", {}),
    ]
    assert parse_jaas("/**//*/ x.Y optional; */a.B required; /* never closed").name == "a.B"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must begin with the class of a login module"),
        (" ; ", "must begin with the class of a login module: character 2$"),
        ("a.B", "followed by one of required, requisite, sufficient, optional; the text ends before"),
        ("a.B always;", "followed by one of required"),
        ("a.B required", "must end with a semicolon"),
        ("a.B required key;", "an option must be key=value, its value in quotes unless it is a word: character 17$"),
        ("a.B required key=;", "must be a word, or a text in quotes"),
        ("a.B required key=123secret;", "must be a word, or a text in quotes"),
        ("a.B required key=-secret;", "must be a word, or a text in quotes"),
        ('a.B required key="secret;', "a quote is not closed: it begins at character 18"),
        ('a.B required key="secret\nx";', "a quote is not closed"),
        ('a.B required key="secret\\', "a quote is not closed"),
        ("a.B required; c.D required;", "must have one login module; got 2"),
    ],
)
def test_errors_name_the_problem_and_no_secret(text: str, problem: str) -> None:
    with pytest.raises(JaasError, match=problem) as failure:
        parse_jaas(text)
    assert "secret" not in str(failure.value)


def test_nothing_shows_the_options_of_a_module() -> None:
    assert "hidden" not in repr(parse_jaas('a.B required password="hidden";'))


@given(st.text(alphabet=st.sampled_from("aB9.-_$ \t\n\r\"'\\/*=;,{}0\x7f\x80\xa0é"), max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        entries = parse_entries(text)
    except JaasError:
        return
    assert entries


@given(st.dictionaries(st.from_regex(r"[a-z_$][a-z0-9_$.-]*", fullmatch=True), st.text()))
def test_quoted_values_come_back_as_they_were(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        letters = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
        return '"' + "".join(letters.get(letter, letter) for letter in value) + '"'

    text = "a.B required " + " ".join(f"{key}={quoted(value)}" for key, value in options.items()) + ";"
    assert parse_jaas(text).options == options
