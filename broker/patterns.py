"""Core: patterns that clients send, in RE2's syntax, matched in time linear in the text.

They are run against every topic and every transactional id, so nothing in one may make the node hang: it is walked as
a set of places, never by trying one way after the other (Thompson's construction; the sets are kept as states of a
machine that is built as far as it is needed). It is told whether a whole text matches, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from broker.character_sets import WORDS, CharacterSet
from broker.pattern_parser import Choice, Condition, Here, Node, One, PatternError, Repeat, Sequence, parse

__all__ = ["MOST_STATES", "Pattern", "PatternError"]

MOST_STATES = 4_000
"""Sets of places that are kept. When there are more, all are forgotten and found again."""


# -- conditions

_NEWLINE, _WORD, _OTHER = "\n", "w", "."


def _neighbour(character: str) -> str:
    """All that a condition asks of a neighbour: "" (there is none), _NEWLINE, _WORD or _OTHER."""
    if character in ("", _NEWLINE):
        return character
    return _WORD if character in WORDS else _OTHER


_HOLDS: dict[Condition, Callable[[str, str], bool]] = {
    Condition.TEXT_BEGINS: lambda before, ahead: before == "",
    Condition.TEXT_ENDS: lambda before, ahead: ahead == "",
    Condition.LINE_BEGINS: lambda before, ahead: before in ("", _NEWLINE),
    Condition.LINE_ENDS: lambda before, ahead: ahead in ("", _NEWLINE),
    Condition.WORD_EDGE: lambda before, ahead: (before == _WORD) is not (ahead == _WORD),
    Condition.NO_WORD_EDGE: lambda before, ahead: (before == _WORD) is (ahead == _WORD),
}


# -- programs


class _Step(NamedTuple):
    """One instruction: a character out of these, then on; or a condition, then on; or on all ways at once."""

    characters: CharacterSet | None = None
    holds: Callable[[str, str], bool] | None = None
    on: tuple[int, ...] = ()


_DONE = 0


class _Compiler:
    """From what a pattern says to instructions. Each part is told where to go on, so they are made from the end."""

    def __init__(self) -> None:
        self.steps: list[_Step] = [_Step()]

    def add(self, step: _Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def compile(self, node: Node, on: int) -> int:
        """Where this part begins, if it goes on at `on`."""
        match node:
            case One(characters=characters):
                return self.add(_Step(characters=characters, on=(on,)))
            case Here(condition=condition):
                return self.add(_Step(holds=_HOLDS[condition], on=(on,)))
            case Sequence(parts=parts):
                for part in reversed(parts):
                    on = self.compile(part, on)
                return on
            case Choice(parts=parts):
                return self.add(_Step(on=tuple(self.compile(part, on) for part in parts)))
            case Repeat():
                return self._repeat(node, on)

    def _repeat(self, node: Repeat, on: int) -> int:
        if node.most is None:
            loop = self.add(_Step())
            self.steps[loop] = _Step(on=(self.compile(node.part, loop), on))
            on = loop
        else:
            for _ in range(node.most - node.least):
                on = self.add(_Step(on=(self.compile(node.part, on), on)))
        for _ in range(node.least):
            on = self.compile(node.part, on)
        return on


# -- matching


@dataclass(slots=True, eq=False)
class _State:
    """All places of the program where a text that began like this one can be."""

    places: frozenset[int]
    before: str
    """The neighbour before them."""
    following: dict[str, _State | None]
    """By the next character, if that is ASCII. None: nothing matches any more."""
    accepts: bool | None = None
    """Whether the text may end here. None: not known yet."""


class Pattern:
    """A pattern, ready to be matched."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        compiler = _Compiler()
        self._first = compiler.compile(parse(text), _DONE)
        self._steps = compiler.steps
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self.work = 0
        """How many instructions have been looked at: what matching has cost."""

    def matches(self, text: str) -> bool:
        """Whether all of `text` matches."""
        state = self._state(frozenset((self._first,)), "")
        for character in text:
            self.work += 1
            if character in state.following:
                following = state.following[character]
            else:
                following = self._follow(state, character)
                if character.isascii():
                    state.following[character] = following
            if following is None:
                return False
            state = following
        if state.accepts is None:
            state.accepts = _DONE in self._reached(state, "")
        return state.accepts

    def _state(self, places: frozenset[int], before: str) -> _State:
        key = (places, before)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= MOST_STATES:
                self._states.clear()
            state = self._states[key] = _State(places, before, {})
        return state

    def _follow(self, state: _State, character: str) -> _State | None:
        places = []
        for place in self._reached(state, character):
            step = self._steps[place]
            if step.characters is not None and character in step.characters:
                places.append(step.on[0])
        return self._state(frozenset(places), _neighbour(character)) if places else None

    def _reached(self, state: _State, character: str) -> set[int]:
        """All instructions that can be got to without a character, with this one next (empty at the end)."""
        before, ahead = state.before, _neighbour(character)
        reached: set[int] = set()
        waiting = list(state.places)
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            step = self._steps[place]
            if step.characters is None and (step.holds is None or step.holds(before, ahead)):
                waiting += step.on
        self.work += len(reached)
        return reached
