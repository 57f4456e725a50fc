"""Searches an order of operations, each at one moment between its invocation and its completion, that explains their
results: the algorithm of Wing and Gong with Lowe's cache of tried configurations.

Generic over a model of one object. A history is cut into objects, which are searched one by one. Operations with an
unknown outcome stay open to the end, and may never have taken place. The search is exponential at worst, so it
has a limit of steps, at which the answer is `unknown` and never `true`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from checkers.gathering import Gathered
from checkers.verdict import Finding, Valid, Verdict
from operations import Operation

STEPS = 500_000
"""Tried moments, for each object; some seconds."""
MOST_STATES = 8
"""States of an object that are reported."""
NEVER = 1 << 62
"""Completion of a call with an unknown outcome."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operation that may have taken place. Those that surely did not are left out."""

    f: str
    asked: Any
    given: Any
    """Its result; None if unknown."""
    known: bool
    """It surely took place, and gave that."""
    invoked: int
    """Place in the history."""
    completed: int
    """Not known: never, which is as far off as one likes."""
    i: int
    """Under which findings name it."""


State = TypeVar("State", bound=Hashable)


class Model(Protocol[State]):
    """Sequential model of one object."""

    def initial(self, name: str) -> State:
        """Initial state of the object of that name."""

    def step(self, state: State, call: Call) -> Iterable[State]:
        """The states in which the object may be after `call`, in an order that is always the same; none if the object
        cannot have given in this state what the call gave. If the call is not known, whatever it may have given."""


@dataclass(frozen=True, slots=True)
class Searched(Generic[State]):
    """Result of the search for one object."""

    valid: Valid
    steps: int
    explained: Sequence[Call]
    """The longest order that was found, in it."""
    states: Sequence[State]
    """In which it may leave the object."""
    stuck: Sequence[Call]
    """Calls of which none can come next, after that: each must be over before any other begins."""


def search(calls: Sequence[Call], model: Model[State], initial: State, limit: int = STEPS) -> Searched[State]:
    """One object's calls."""
    return _Search(sorted(calls, key=lambda call: call.invoked), model, limit).run(initial)


class _Place(NamedTuple):
    """Progress of an order: the set of calls in it, equal for all orders of the same calls."""

    first: int
    """The first of the known calls that is not; all before it are."""
    known: int
    """Bits of those that are, from `first` on: few, since calls that are long over cannot be left."""
    unknown: int
    """Bits of the unknown ones that are."""


class _Order(NamedTuple):
    """Calls one after the other, from the last to the first: many of them share their beginning."""

    call: int
    before: _Order | None
    length: int


class _Step(NamedTuple, Generic[State]):
    place: _Place
    state: State
    order: _Order | None
    after: Iterator[tuple[_Place, State, int]]
    """Calls that may come next and were not tried."""


class _Best(Generic[State]):
    """The longest order so far, and the states in which orders of its length leave the object."""

    def __init__(self, step: _Step[State]) -> None:
        self.order = step.order
        self.place = step.place
        self.states = [step.state]

    def look_at(self, step: _Step[State]) -> None:
        length, longest = _length(step.order), _length(self.order)
        if length > longest:
            self.order, self.place, self.states = step.order, step.place, [step.state]
        elif length == longest and step.state not in self.states and len(self.states) < MOST_STATES:
            self.states.append(step.state)


def _length(order: _Order | None) -> int:
    return 0 if order is None else order.length


class _Search(Generic[State]):
    """Calls by their number in the order of invocations; those known and the others have places of their own."""

    def __init__(self, calls: Sequence[Call], model: Model[State], limit: int) -> None:
        self._calls, self._model, self._limit = calls, model, limit
        self._knowns = [number for number, call in enumerate(calls) if call.known]
        self._unknowns = [number for number, call in enumerate(calls) if not call.known]
        self._tried: dict[tuple[int, int, State], list[int]] = {}
        """By the known calls that are taken, and the state: the sets of unknown ones that were taken as well."""

    def run(self, initial: State) -> Searched[State]:
        calls = self._calls
        start = _Place(0, 0, 0)
        path = [_Step(start, initial, None, self._after(start, initial))]
        best = _Best(path[0])
        steps = 0
        while path:
            step = path[-1]
            if step.place.first == len(self._knowns):
                return Searched("true", steps, self._calls_of(step.order), [step.state], ())
            following = next(step.after, None)
            if following is None:
                best.look_at(step)
                path.pop()
                continue
            steps += 1
            if steps > self._limit:
                best.look_at(step)
                return Searched("unknown", steps, self._calls_of(best.order), best.states, ())
            place, state, number = following
            if self._is_new(place, state):
                order = _Order(number, step.order, _length(step.order) + 1)
                path.append(_Step(place, state, order, self._after(place, state)))
        stuck = [calls[number] for _, number in self._next(best.place) if calls[number].known]
        return Searched("false", steps, self._calls_of(best.order), best.states, stuck)

    def _calls_of(self, order: _Order | None) -> list[Call]:
        found = []
        while order is not None:
            found.append(self._calls[order.call])
            order = order.before
        return found[::-1]

    def _is_new(self, place: _Place, state: State) -> bool:
        """Whether this was not tried with the same unknown calls, or with fewer: everything that can follow more of
        them can follow fewer as well.
        """
        tried = self._tried.setdefault((place.first, place.known, state), [])
        if any(unknown & place.unknown == unknown for unknown in tried):
            return False
        tried.append(place.unknown)
        return True

    def _after(self, place: _Place, state: State) -> Iterator[tuple[_Place, State, int]]:
        for then, number in self._next(place):
            for next_state in self._model.step(state, self._calls[number]):
                yield then, next_state, number

    def _next(self, place: _Place) -> Iterator[tuple[_Place, int]]:
        """Calls that may come next: those invoked before any other that is left was over. Those that are known come
        first: most histories are explained without most of the others."""
        calls = self._calls
        ends = NEVER
        candidates = []
        for at in range(place.first, len(self._knowns)):
            call = calls[self._knowns[at]]
            if call.invoked > ends:
                break
            if not place.known >> (at - place.first) & 1:
                candidates.append(at)
                ends = min(ends, call.completed)
        for at in candidates:
            yield _taken(place, at - place.first), self._knowns[at]
        for bit, number in enumerate(self._unknowns):
            if calls[number].invoked > ends:
                break
            if not place.unknown >> bit & 1:
                yield place._replace(unknown=place.unknown | 1 << bit), number


def _taken(place: _Place, bit: int) -> _Place:
    """With this known call in it."""
    first, known = place.first, place.known | 1 << bit
    while known & 1:
        first, known = first + 1, known >> 1
    return _Place(first, known, place.unknown)


@dataclass(frozen=True)
class Linearizability(Generic[State]):
    """A checker of some of a history's operations."""

    model: Model[State]
    fs: tuple[str, ...]
    """The operations that it is about."""
    object_of: Callable[[str, Any], str | None]
    """(f, what was asked) to the name of the object; None: it is about none."""
    name: str = "linearizability"
    limit: int = STEPS

    def check(self, history: Iterable[Operation]) -> Verdict:
        gathered = Gathered()
        unknown: list[str] = []
        steps = 0
        objects = calls_of(history, self.fs, self.object_of)
        for name, calls in objects.items():
            searched = search(calls, self.model, self.model.initial(name), self.limit)
            steps += searched.steps
            if searched.valid == "unknown":
                unknown.append(f"{name}: no order found in {self.limit} steps")
            elif searched.valid == "false":
                gathered.add(_describe(name, searched))
        verdict = gathered.verdict({"objects": len(objects), "steps": steps})
        if unknown and verdict.valid == "true":
            return Verdict("unknown", verdict.findings, verdict.figures, "; ".join(unknown))
        return verdict


def calls_of(
    history: Iterable[Operation], fs: Sequence[str], object_of: Callable[[str, Any], str | None]
) -> Mapping[str, list[Call]]:
    """By object, in the order of their first invocation."""
    open_: dict[int | str, Operation] = {}
    found: dict[str, list[Call]] = {}

    def add(invocation: Operation, completion: Operation | None) -> None:
        name = object_of(invocation.f, invocation.value)
        if name is None or (completion is not None and completion.type == "fail"):
            return
        if completion is not None and completion.type == "ok":
            call = Call(
                invocation.f, invocation.value, completion.value, True, invocation.i, completion.i, completion.i
            )
        else:
            i = completion.i if completion is not None else invocation.i
            call = Call(invocation.f, invocation.value, None, False, invocation.i, NEVER, i)
        found.setdefault(name, []).append(call)

    for operation in history:
        if operation.f not in fs or isinstance(operation.process, str):
            continue
        if operation.type == "invoke":
            open_[operation.process] = operation
        elif operation.process in open_:
            add(open_.pop(operation.process), operation)
    for invocation in open_.values():
        add(invocation, None)
    return {name: sorted(calls, key=lambda call: call.invoked) for name, calls in found.items()}


def _describe(name: str, searched: Searched[Any]) -> Finding:
    last = searched.explained[-3:]
    done = "; ".join(f"{call.f} {call.asked!r} gave {call.given!r}" if call.known else call.f for call in last)
    state = " or ".join(repr(state) for state in searched.states[:3])
    stuck = "; ".join(f"{call.f} {call.asked!r} gave {call.given!r}" for call in searched.stuck[:4])
    text = f"No order of the operations on {name} explains their results."
    if done:
        text += f" At most {len(searched.explained)} can be put in order, the last ones: {done}."
    text += f" Then it is {state}, and none of these can come next: {stuck}."
    operations = sorted({call.i for call in (*last, *searched.stuck)})
    return Finding("nonlinearizable", name, operations, text)
