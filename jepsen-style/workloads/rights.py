"""Administrators at the rights of a few users, and attempts of these users at one broker each.

Each thread has a family of resources whose ACLs only it changes: topics, groups and transactional ids
`rights-N-a` and `rights-N-b`, and the prefix of both. It also has a user that it gives passwords and removes. A family
or a user of which a change has an unknown outcome is never changed again; others take their place. All threads try
everything.

`grant` and `revoke` `{"family": "rights-N-", "acl": [...]}`, an `Acl`: it is created, or deleted.
`password` `{"user": name, "version": n}`, `remove` `{"user": name}`.
`acls` `{"family", "turn"}`, completed with `"acls"`; `users` `{"user", "turn"}`, completed with `"version"` of the
password, null if there is none: as one broker knows them, which is the completion's node.
`try` `{"family", "who", "tried": [...], "turn"}`, a `Tried`: `ok` is allowed, and an authorization error denies.
`login` `{"user", "version", "turn"}` with that version of the password.
`settled` is true in those that are done at the end, when all is healed and quiet.
`crash`: the client is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, SecuredClient, WorkClient
from clients.trials import DENIALS, TRIALS
from operations import Completion, Invocation
from rights import ANYBODY, Acl, Login, Tried
from workloads.lives import CRASH, Finale, Lives, crash, drawn, failed, one_of
from workloads.workload import WorkloadOptions

USERS = 3
"""Users that always have the same password, and that ACLs are about."""
SIDES = ("a", "b")
PARTITIONS = 1
MOST_ACLS = 6
"""Maximum of a family at a time."""
MOST_CHANGES = 60
"""Maximum for a family, or a user."""
LAST_LOOKED_AT = 6
"""Families, and users, that are looked at in the end."""
LAST_TRIES = 6
"""In a family at each broker."""
FIRST_VERSION = 0
FINAL_READERS = 2
ANSWERS = (*DENIALS, "SaslAuthenticationException", "UnknownTopicOrPartitionException")
"""Errors that are answers. A topic is not there if its creation had an unknown outcome."""
ABSENT = "ResourceNotFoundException"
"""The error of a `remove` if there is no such user."""
CLUSTER = Acl("CLUSTER", "LITERAL", "kafka-cluster", "ANONYMOUS", "ALTER", "DENY")
"""Keeps the rights for administrators, where everyone may do what no ACL is about."""
_SHARES = (
    ("try", 0.42),
    ("grant", 0.12),
    ("revoke", 0.09),
    ("acls", 0.16),
    ("login", 0.08),
    ("users", 0.06),
    ("password", 0.04),
    ("remove", 0.03),
)
_CHANGES = ("grant", "revoke", "password", "remove")
_RESOURCES = ("TOPIC", "TOPIC", "TOPIC", "GROUP", "TRANSACTIONAL_ID")
_OPERATIONS = {
    "TOPIC": ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"),
    "GROUP": ("READ", "DESCRIBE", "ALL"),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE", "ALL"),
}
_PERMISSIONS = ("ALLOW", "ALLOW", "DENY")
_ACTIONS = {resource: [name for name, it in TRIALS.items() if it.resource == resource] for resource in _OPERATIONS}
_ACTIONS["TOPIC"].append("alter")
"""By resource. Only "alter" is forwarded, and so comes twice as often as the others."""


@dataclass(slots=True)
class _Family:
    """Resources with one beginning, and their ACLs."""

    beginning: str
    acls: list[Acl] = field(default_factory=list)
    changes: int = 0
    is_made: bool = False
    """Its topics are there."""

    @property
    def names(self) -> list[str]:
        return [self.beginning + side for side in SIDES]


@dataclass(slots=True)
class _User:
    """A user that comes and goes."""

    name: str
    version: int | None = None
    """Version of its password; None: there is no such user."""
    used: int = FIRST_VERSION
    """The next version."""


class Rights:
    """One run of it; a `Workload`."""

    name = "rights"

    def __init__(self, options: WorkloadOptions) -> None:
        self._lives = Lives(options)
        self._topics = self._lives.topics(PARTITIONS)
        self._finale = Finale(range(min(FINAL_READERS, options.processes)))
        self._guards_cluster = options.more.get("allow_everyone") == "true"
        self._users = [self._lives.named(f"rights-user-{number}") for number in range(USERS)]
        self._families: list[_Family] = []
        """All that were ever used; the last is the newest."""
        self._guests: list[_User] = []
        self._own_family: dict[int, _Family] = {}
        """By thread."""
        self._own_guest: dict[int, _User] = {}
        for thread in range(options.processes):
            self._replace_family(thread)
            self._replace_guest(thread)
        self._brokers = 1
        self._last: dict[int, list[Invocation]] = {}
        """By thread: what it still has to look at in the end."""

    def _replace_family(self, thread: int) -> None:
        family = self._own_family[thread] = _Family(self._lives.named(f"rights-{len(self._families)}-"))
        self._families.append(family)

    def _replace_guest(self, thread: int) -> None:
        guest = self._own_guest[thread] = _User(self._lives.named(f"rights-guest-{len(self._guests)}"))
        self._guests.append(guest)

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return replace(base, group_id=None, transactional_id=None)

    async def set_up(self, client: WorkClient) -> None:
        security = cast(SecuredClient, client).security
        self._brokers = security.brokers
        if self._guards_cluster:
            await security.create_acl(CLUSTER)
        for user in self._users:
            await security.set_password(user, FIRST_VERSION)

    # What to do

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        thread = self._lives.thread(process)
        if self._finale.begun:
            return self._look(thread, chance, now_ns)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        f = drawn(chance, _SHARES)
        family, guest = self._own_family[thread], self._own_guest[thread]
        if f in ("grant", "revoke"):
            return self._change_acls(family, f, chance)
        if f in ("password", "remove"):
            return self._change_guest(guest, f)
        return self._ask(f, chance)

    def _change_acls(self, family: _Family, f: str, chance: Chance) -> Invocation:
        family.changes += 1
        if family.acls and (f == "revoke" or len(family.acls) >= MOST_ACLS):
            acl = one_of(chance, family.acls)
            return Invocation("revoke", {"family": family.beginning, "acl": list(acl)})
        resource = one_of(chance, _RESOURCES)
        pattern, name = "LITERAL", one_of(chance, family.names)
        if chance.random() < 0.4:
            pattern, name = "PREFIXED", family.beginning
        acl = Acl(
            resource,
            pattern,
            name,
            one_of(chance, (*self._users, ANYBODY)),
            one_of(chance, _OPERATIONS[resource]),
            one_of(chance, _PERMISSIONS),
        )
        return Invocation("grant", {"family": family.beginning, "acl": list(acl)})

    def _change_guest(self, guest: _User, f: str) -> Invocation:
        if f == "remove" and guest.version is not None:
            return Invocation("remove", {"user": guest.name})
        guest.used += 1
        return Invocation("password", {"user": guest.name, "version": guest.used})

    def _ask(self, f: str, chance: Chance) -> Invocation:
        turn = chance.randrange(0, self._brokers)
        if f in ("users", "login"):
            return self._ask_guest(f, one_of(chance, list(self._own_guest.values())), turn, chance)
        family = one_of(chance, list(self._own_family.values()))
        if f == "acls":
            return Invocation(f, {"family": family.beginning, "turn": turn})
        return self._try(family, turn, chance)

    def _ask_guest(self, f: str, guest: _User, turn: int, chance: Chance) -> Invocation:
        asked: dict[str, Any] = {"user": guest.name, "turn": turn}
        if f == "login":
            # Mostly the newest ones, which a broker may not know yet, or still know.
            asked["version"] = max(FIRST_VERSION + 1, guest.used - one_of(chance, (0, 0, 0, 1, 1, 2)))
        return Invocation(f, asked)

    def _try(self, family: _Family, turn: int, chance: Chance) -> Invocation:
        resource = one_of(chance, _RESOURCES)
        action = one_of(chance, _ACTIONS[resource])
        tried = Tried(action, resource, one_of(chance, family.names), TRIALS[action].operation)
        asked: dict[str, Any] = {"family": family.beginning, "who": one_of(chance, self._users), "tried": list(tried)}
        if TRIALS[action].forwarded:
            asked["forwarded"] = True
        return Invocation("try", asked | {"turn": turn})

    # How it is done

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        value = dict(invocation.value)
        node = None
        try:
            if invocation.f in _CHANGES:
                await self._change(invocation.f, value, client)
            else:
                node = cast(SecuredClient, client).security.node(value["turn"])
                await self._ask_one(invocation.f, value, client)
        except ClientError as error:
            if error.name == ABSENT:
                # It was there. The broker may have lost an answer and forwarded the request again.
                return Completion("info", invocation.value, (error.name, error.text))
            return replace(failed(error, invocation.value), node=node)
        return Completion("ok", value, node=node)

    async def _change(self, f: str, value: dict[str, Any], client: WorkClient) -> None:
        security = cast(SecuredClient, client).security
        if f == "grant":
            family = next(each for each in self._families if each.beginning == value["family"])
            await self._topics.need(client, family.names)
            await security.create_acl(Acl(*value["acl"]))
        elif f == "revoke":
            await security.delete_acl(Acl(*value["acl"]))
        elif f == "password":
            await security.set_password(value["user"], value["version"])
        else:
            await security.delete_user(value["user"])

    async def _ask_one(self, f: str, value: dict[str, Any], client: WorkClient) -> None:
        security, turn = cast(SecuredClient, client).security, value["turn"]
        if f == "acls":
            value["acls"] = [list(acl) for acl in await security.acls_at(turn, value["family"])]
        elif f == "users":
            value["version"] = await security.version_at(turn, value["user"])
        elif f == "login":
            await security.log_in(turn, Login(value["user"], value["version"]))
        else:
            await security.attempt(turn, value["who"], Tried(*value["tried"]))

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        thread = self._lives.thread(process)
        if invocation.f in ("grant", "revoke"):
            self._acls_changed(thread, invocation, completion)
        elif invocation.f in ("password", "remove"):
            self._guest_changed(thread, invocation, completion)
        elif self._finale.begun and _is_answered(completion):
            self._last[thread].remove(invocation)
            if not self._last[thread]:
                self._finale.has_finished(thread)

    def _acls_changed(self, thread: int, invocation: Invocation, completion: Completion) -> None:
        family, acl = self._own_family[thread], Acl(*invocation.value["acl"])
        if completion.type == "ok":
            family.acls = [each for each in family.acls if each != acl]
            if invocation.f == "grant":
                family.acls.append(acl)
        if completion.type == "info" or family.changes >= MOST_CHANGES:
            self._replace_family(thread)

    def _guest_changed(self, thread: int, invocation: Invocation, completion: Completion) -> None:
        guest = self._own_guest[thread]
        if completion.type == "ok":
            guest.version = invocation.value.get("version")
        if completion.type == "info" or guest.used >= MOST_CHANGES:
            self._replace_guest(thread)

    # The end

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over

    def _look(self, thread: int, chance: Chance, now_ns: int) -> Invocation | None:
        if not self._finale.waits_for(thread, now_ns):
            return None
        if thread not in self._last:
            self._last[thread] = [
                Invocation(each.f, {**each.value, "settled": True}) for each in self._last_looks(chance)
            ]
        return self._last[thread][0]

    def _last_looks(self, chance: Chance) -> Iterator[Invocation]:
        for turn in range(self._brokers):
            for family in self._families[-LAST_LOOKED_AT:]:
                yield Invocation("acls", {"family": family.beginning, "turn": turn})
                for _ in range(LAST_TRIES):
                    yield self._try(family, turn, chance)
            for guest in self._guests[-LAST_LOOKED_AT:]:
                yield self._ask_guest("users", guest, turn, chance)
                yield self._ask_guest("login", guest, turn, chance)


def _is_answered(completion: Completion) -> bool:
    return completion.type == "ok" or (completion.error is not None and completion.error[0] in ANSWERS)
