"""Errors of pyiceberg, the database and the store, as those of `errors.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationException,
)
from requests import RequestException
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from barnabas.lake.errors import CatalogRefused, CatalogUnavailable, CommitConflict

T = TypeVar("T")

_REFUSED = (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    UnauthorizedError,
    PermissionError,
)


def translated(table: str, work: Callable[[], T]) -> T:
    """The result of `work`. `CommitConflict`, `CatalogRefused`, `CatalogUnavailable`."""
    try:
        return work()
    except (CommitFailedException, ValidationException) as error:
        raise CommitConflict(f"{table}: {in_one_line(error)}") from error
    except _REFUSED as error:
        raise CatalogRefused(f"the catalogue refuses {table}: {in_one_line(error)}") from error
    except (RESTError, RequestException, OperationalError, OSError) as error:
        raise CatalogUnavailable(
            f"the catalogue or the store of {table} is unavailable: {in_one_line(error)}"
        ) from error
    except SQLAlchemyError as error:
        raise CatalogRefused(f"the database of the catalogue refuses {table}: {in_one_line(error)}") from error


def in_one_line(error: BaseException) -> str:
    """The kind of the error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
