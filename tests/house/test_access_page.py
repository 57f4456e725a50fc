"""docs/access-control.md names each request that needs a right on the cluster, with this right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.kraft.authorizer.requirements import ON_BROKERS, ON_CONTROLLERS
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.api_keys import API_SPECS

PAGE = Path(__file__).parents[2] / "docs" / "access-control.md"


@pytest.mark.feature("SE-09")
def test_the_page_has_the_table_of_rights() -> None:
    whole, _, items = PAGE.read_text("utf-8").partition("Others are checked item by item")
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", whole, re.MULTILINE))
    for operation in AclOperation:
        needing = {key for table in (ON_CONTROLLERS, ON_BROKERS) for key, it in table.items() if operation in it}
        name = "".join(part.capitalize() for part in operation.name.split("_"))
        named = re.split(r"[,;] (?:of brokers )?", rows.get(name, ""))
        assert sorted(filter(None, named)) == sorted(API_SPECS[key].name for key in needing), name
    by_item = {API_SPECS[key].name for key, operations in ON_CONTROLLERS.items() if not operations}
    assert all(re.search(rf"^\| (\w+, )?{name}[ ,]", items, re.MULTILINE) for name in by_item)
