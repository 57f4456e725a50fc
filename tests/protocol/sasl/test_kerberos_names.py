"""Names of Kerberos and the rules that make Kafka's names of them; the examples are Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.sasl.kerberos_names import LONGEST_NAME, KerberosName, NoShortName, ShortNames

pytestmark = pytest.mark.feature("SE-05")

REALM = "REALM.COM"


def short(text: str, *rules: str) -> str:
    return ShortNames(rules or ("DEFAULT",), REALM).of(KerberosName.parse(text))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("App.service-name/example.com@REALM.COM", ("App.service-name", "example.com", REALM)),
        ("App.service-name@REALM.COM", ("App.service-name", None, REALM)),
        ("user/host@REALM.COM", ("user", "host", REALM)),
        ("user", ("user", None, None)),
        ("user/host", ("user/host", None, None)),
        ("@", ("", None, "")),
    ],
)
def test_a_name_has_parts(text: str, parts: tuple[str, str | None, str | None]) -> None:
    name = KerberosName.parse(text)
    assert (name.service, name.host, name.realm) == parts
    assert str(name) == text


@pytest.mark.parametrize("text", ["a@b@c", "a/b/c@d", "a@b/c"])
def test_a_malformed_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        KerberosName.parse(text)


KAFKAS_RULES = [
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "DEFAULT",
]
CASE_RULES = [
    "RULE:[1:$1]/L",
    "RULE:[2:$1](Test.*)s/ABC///L",
    "RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g/L",
]


@pytest.mark.parametrize(
    ("text", "rules", "name"),
    [
        ("App.service-name/example.com@REALM.COM", KAFKAS_RULES, "service-name"),
        ("App.service-name@REALM.COM", KAFKAS_RULES, "service-name"),
        ("user/host@REALM.COM", KAFKAS_RULES, "user"),
        ("User@REALM.COM", CASE_RULES, "user"),
        ("TestABC/host@FOO.COM", CASE_RULES, "test"),
        ("ABC_User_ABC/host@FOO.COM", CASE_RULES, "xyz_user_xyz"),
        ("App.SERVICE-name/example.com@REALM.COM", CASE_RULES, "service-name"),
        ("User@REALM.COM", ["RULE:[1:$1]/U"], "USER"),
        ("alice@OTHER.COM", ["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "DEFAULT"], "alice"),
        ("alice/admin@REALM.COM", ["RULE:[2:$1_$2]"], "alice_admin"),
        ("aXbXc@REALM.COM", ["RULE:[1:$1]s/X/-/"], "a-bXc"),
        ("aXbXc@REALM.COM", ["RULE:[1:$1]s/X/\\$1/g"], "a$1b$1c"),
        ("alice", ["RULE:[1:$1]/U"], "alice"),  # no realm: already short
    ],
)
def test_the_first_rule_that_fits_makes_the_name(text: str, rules: list[str], name: str) -> None:
    assert short(text, *rules) == name


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("alice@OTHER.COM", ["DEFAULT"]),
        ("alice@REALM.COM", ["RULE:[2:$1]"]),
        ("alice@REALM.COM", ["RULE:[1:$1](bob)"]),
        ("alice@REALM.COM", ["RULE:[1:$1@$0]"]),  # not a simple name
        ("alice@REALM.COM", ["RULE:[1:$1](lic)"]),  # the pattern is for the whole text
        ("al\nice@REALM.COM", ["DEFAULT"]),
        ("x" * LONGEST_NAME + "@REALM.COM", ["DEFAULT"]),
    ],
)
def test_a_name_without_a_rule_is_refused(text: str, rules: list[str]) -> None:
    with pytest.raises(NoShortName):
        short(text, *rules)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "DEFAULT/L",
        "RULE:[1:$1",
        "RULE:[:$1]",
        "RULE:[1:$1]x",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$1](a[)",
        "RULE:[1:$1](a)s/(?=x)/y/",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/b/L/",
        "RULE:[1:$1]/g/L",
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(rule: str) -> None:
    with pytest.raises(ValueError):
        ShortNames([rule])


@given(st.text())
def test_any_name_has_a_simple_short_one_or_none(text: str) -> None:
    try:
        name = short(text, *CASE_RULES, "RULE:[1:$1](.*)s/(.)/$1/g", "RULE:[2:$2$1]")
    except (NoShortName, ValueError):
        return
    assert "@" not in name and name.isprintable()


@given(st.text())
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    try:
        ShortNames([text])
    except ValueError:
        pass


def test_a_name_cannot_make_a_pattern_slow() -> None:
    """The pattern takes exponential time where patterns backtrack."""
    name = "a" * 500
    assert short(f"{name}@REALM.COM", "RULE:[1:$1]s/(a*)*b/x/") == name
