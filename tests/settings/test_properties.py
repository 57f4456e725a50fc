"""The .properties format as Java reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.settings.errors import SettingsError
from barnabas.settings.properties import parse_properties, render_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\n# note\n! note\n\nb = 2", {"a": ("1", 1), "b": ("2", 5)}),
        ("a:1\nb 2\nc\t=\t3", {"a": ("1", 1), "b": ("2", 2), "c": ("3", 3)}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": ("1,2,3", 1), "b": ("4", 4)}),
        ("a=1\\\\\nb=2", {"a": ("1\\", 1), "b": ("2", 2)}),
        ("a=1\r\nb=2\r", {"a": ("1", 1), "b": ("2", 2)}),
        ("a=1\na=2", {"a": ("2", 2)}),
        ("k\\=e\\:y=v\\tw\\u0041", {"k=e:y": ("v\twA", 1)}),
        ("lone", {"lone": ("", 1)}),
        ("a=b=c", {"a": ("b=c", 1)}),
        ("a=# kept", {"a": ("# kept", 1)}),
        ("a=cut\\", {"a": ("cut", 1)}),
        ("", {}),
    ],
)
def test_each_form_that_java_takes(text: str, found: dict[str, tuple[str, int]]) -> None:
    assert parse_properties(text, "node.properties") == found


def test_an_error_names_the_line_of_a_cut_escape() -> None:
    with pytest.raises(SettingsError, match=r"^node.properties line 2: .*four hexadecimal digits"):
        parse_properties("a=1\nb=\\u00g1", "node.properties")


@given(st.text())
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        parse_properties(text, "any")
    except SettingsError as error:
        assert "\n" not in str(error)


@given(
    st.dictionaries(st.from_regex(r"[a-z.]{1,10}", fullmatch=True), st.from_regex(r"[a-z0-9,:/]{0,10}", fullmatch=True))
)
def test_written_values_are_read_back(values: dict[str, str]) -> None:
    text = "\n".join(f"{key}={value}" for key, value in values.items())
    assert {key: value for key, (value, _line) in parse_properties(text, "any").items()} == values


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_rendered_properties_are_read_back(values: dict[str, str]) -> None:
    found = parse_properties(render_properties(values), "any")
    assert {key: value for key, (value, _line) in found.items()} == values
