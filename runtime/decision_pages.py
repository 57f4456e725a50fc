"""The pages with the decisions of a node: `/decisions` and `/subjects`.

    /decisions?after=N&subject=S&kind=K&limit=L   {"node": …, "next": …, "first": …, "decisions": […]}, oldest first
    /subjects                                     {"node": …, "subjects": […]}

`after` is the number of the last decision that the reader has (0: none). `next` is the number to continue from: the
next request has `after=next-1`. From `first` on no decision is missing; if it is above the first number that was
requested, decisions in between may be missing.
"""

from __future__ import annotations

import json
from http import HTTPStatus

from barnabas.runtime.decisions import Decisions
from barnabas.runtime.http import JSON, HttpRequest, HttpResponse
from barnabas.runtime.observatory import Page

MAX_LIMIT = 1000
"""Decisions in one answer: some milliseconds of work."""
MAX_DIGITS = 18


def decision_pages(decisions: Decisions) -> dict[str, Page]:
    """By path."""

    async def newest(request: HttpRequest) -> HttpResponse:
        try:
            after = _whole_number(request, "after", 0)
            limit = min(_whole_number(request, "limit", MAX_LIMIT), MAX_LIMIT)
        except ValueError as error:
            return HttpResponse.text(f"{error}\n", HTTPStatus.BAD_REQUEST)
        found = decisions.since(after + 1, request.query.get("subject"), limit, request.query.get("kind"))
        is_cut = len(found) == limit and limit > 0
        return _json(
            {
                "node": decisions.node,
                "next": found[-1].number + 1 if is_cut else decisions.next_number,
                "first": decisions.first_number,
                "decisions": [it.as_json() for it in found],
            }
        )

    async def subjects(request: HttpRequest) -> HttpResponse:
        return _json({"node": decisions.node, "subjects": decisions.subjects()})

    return {"/decisions": newest, "/subjects": subjects}


def _json(value: object) -> HttpResponse:
    return HttpResponse(json.dumps(value).encode() + b"\n", JSON)


def _whole_number(request: HttpRequest, name: str, default: int) -> int:
    """Raises ValueError with one line."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise ValueError(f"{name} must be a whole number of at most {MAX_DIGITS} digits")
    return int(text)
