"""Whether some order of operations, each at one moment between its invocation and its completion, explains what they
gave: the search of Wing and Gong with Lowe's memory of what was tried.

Generic over a model of one object. A history is cut into objects, which are searched one by one. Operations of which
nobody knows whether they took place stay open to the end, and may never have. The search is exponential at worst, so it
has a limit of steps, at which the answer is `unknown` and never `true`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from checkers.gathering import Gathered
from checkers.verdict import Finding, Valid, Verdict
from operations import Operation

STEPS = 500_000
"""Tried moments, for each object; some seconds."""
NEVER = 1 << 62
"""When a call completes of which nobody knows."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operation that may have taken place. Those that surely did not are left out."""

    f: str
    asked: Any
    given: Any
    """What it gave; None where nobody knows."""
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
    """Of one object, one operation after the other."""

    def initial(self, name: str) -> State:
        """Of the object of that name."""

    def step(self, state: State, call: Call) -> Iterable[State]:
        """The states in which the object may be after `call`, in an order that is always the same; none if the object
        cannot have given in this state what the call gave. If the call is not known, whatever it may have given."""


@dataclass(frozen=True, slots=True)
class Searched(Generic[State]):
    """What came of one object."""

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


class _Search(Generic[State]):
    """Calls by their number in the order of invocations; what was taken is a set of bits."""

    def __init__(self, calls: Sequence[Call], model: Model[State], limit: int) -> None:
        self._calls, self._model, self._limit = calls, model, limit
        self._knowns = [number for number, call in enumerate(calls) if call.known]
        self._unknowns = [number for number, call in enumerate(calls) if not call.known]
        self._known = sum(1 << number for number in self._knowns)

    def run(self, initial: State) -> Searched[State]:
        calls = self._calls
        tried: set[tuple[int, State]] = {(0, initial)}
        order: list[int] = []
        path: list[tuple[int, State, Iterator[tuple[int, State]]]] = [(0, initial, self._after(0, initial, 0))]
        firsts = [0]
        """For each step of the path, the place among those known of the first that is not taken."""
        best: list[int] = []
        best_states: list[State] = [initial]
        steps = 0
        while path:
            taken, state, after = path[-1]
            if taken & self._known == self._known:
                return Searched("true", steps, [calls[number] for number in order], [state], ())
            if len(order) > len(best):
                best, best_states = order[:], [state]
            elif len(order) == len(best) and state not in best_states and len(best_states) < 8:
                best_states.append(state)
            following = next(after, None)
            if following is None:
                path.pop()
                firsts.pop()
                if order:
                    order.pop()
                continue
            steps += 1
            if steps > self._limit:
                return Searched("unknown", steps, [calls[number] for number in best], best_states, ())
            number, next_state = following
            now_taken = taken | 1 << number
            if (now_taken, next_state) in tried:
                continue
            tried.add((now_taken, next_state))
            first = firsts[-1]
            while first < len(self._knowns) and now_taken >> self._knowns[first] & 1:
                first += 1
            order.append(number)
            firsts.append(first)
            path.append((now_taken, next_state, self._after(now_taken, next_state, first)))
        done = sum(1 << number for number in best)
        stuck = [calls[number] for number in self._next(done, 0) if calls[number].known]
        return Searched("false", steps, [calls[number] for number in best], best_states, stuck)

    def _after(self, taken: int, state: State, first: int) -> Iterator[tuple[int, State]]:
        for number in self._next(taken, first):
            for next_state in self._model.step(state, self._calls[number]):
                yield number, next_state

    def _next(self, taken: int, first: int) -> Iterator[int]:
        """Calls that may come next: those invoked before any other that is left was over. Those that are known come
        first: most histories are explained without most of the others."""
        calls = self._calls
        ends = NEVER
        candidates = []
        for place in range(first, len(self._knowns)):
            number = self._knowns[place]
            call = calls[number]
            if call.invoked > ends:
                break
            if not taken >> number & 1:
                candidates.append(number)
                ends = min(ends, call.completed)
        yield from candidates
        for number in self._unknowns:
            if calls[number].invoked > ends:
                break
            if not taken >> number & 1:
                yield number


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
                gathered.add(_tell(name, searched))
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


def _tell(name: str, searched: Searched[Any]) -> Finding:
    last = searched.explained[-3:]
    done = "; ".join(f"{call.f} {call.asked!r} gave {call.given!r}" if call.known else call.f for call in last)
    state = " or ".join(repr(state) for state in searched.states[:3])
    stuck = "; ".join(f"{call.f} {call.asked!r} gave {call.given!r}" for call in searched.stuck[:4])
    told = f"No order of the operations on {name} explains what they gave."
    if done:
        told += f" At most {len(searched.explained)} can be put in order, the last ones: {done}."
    told += f" Then it is {state}, and none of these can come next: {stuck}."
    operations = sorted({call.i for call in (*last, *searched.stuck)})
    return Finding("nonlinearizable", name, operations, told)
