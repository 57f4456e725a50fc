"""docs/settings.md shows the settings of the code."""

from __future__ import annotations

from barnabas.settings.definitions import definitions
from docs.make_settings import PAGE, page, sentences


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run make settings"


def test_every_sentence_is_about_a_known_key() -> None:
    for scope, key in sentences():
        assert key in definitions(scope), f"docs/settings.tsv: {scope} {key}"  # type: ignore[arg-type]
