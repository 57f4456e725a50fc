"""The users of a secure local cluster, in their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.security.users import FIRST_USERS, UserFile

pytestmark = pytest.mark.feature("SE-04")


def test_passwords_of_the_first_users_are_drawn_once(tmp_path: Path) -> None:
    file = UserFile(tmp_path / "users.json")
    drawn = file.ensure()
    assert tuple(drawn) == FIRST_USERS
    assert len(set(drawn.values())) == len(FIRST_USERS)
    assert file.ensure() == drawn
    assert file.path.stat().st_mode & 0o077 == 0, "only its owner may read it"


def test_a_user_that_was_deleted_does_not_return(tmp_path: Path) -> None:
    file = UserFile(tmp_path / "users.json")
    left = {user: password for user, password in file.ensure().items() if user != "alice"}
    file.write(left)
    assert file.ensure() == left
