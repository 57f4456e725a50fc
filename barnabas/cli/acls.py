"""`barnabas security acl`: access control lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument
from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclPermissionType, AclResourceType, PatternType

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin.acl_values import AclBinding

app = typer.Typer(help="List, add and remove access control lists (ACLs).", rich_markup_mode=None)

_OPERATIONS = {operation.name.lower().replace("_", "-"): operation for operation in AclOperation if operation > 1}

User = Annotated[str, typer.Argument(metavar="USER", help="Name of a user, or `*` for all; User:NAME is the same.")]
Operations = Annotated[
    list[str] | None, typer.Argument(metavar="[OPERATION]...", help=f"Of {', '.join(_OPERATIONS)}; default: all.")
]


@dataclass(frozen=True)
class Resources:
    """Options for the resources of an access control list."""

    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="`*`: all topics.")] = None
    group: Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="`*`: all groups.")] = None
    transactional_id: Annotated[list[str] | None, typer.Option("--transactional-id", metavar="ID")] = None
    user: Annotated[list[str] | None, typer.Option("--user", metavar="TYPE:NAME", help="For token operations.")] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False
    prefixed: Annotated[bool, typer.Option("--prefixed", help="Names are prefixes.")] = False

    @property
    def pattern_type(self) -> PatternType:
        return PatternType.PREFIXED if self.prefixed else PatternType.LITERAL

    def named(self) -> Iterator[tuple[AclResourceType, str]]:
        for kind, names in (
            (AclResourceType.TOPIC, self.topic),
            (AclResourceType.GROUP, self.group),
            (AclResourceType.TRANSACTIONAL_ID, self.transactional_id),
            (AclResourceType.USER, self.user),
            (AclResourceType.CLUSTER, [CLUSTER_NAME] if self.cluster else None),
        ):
            for name in names or ():
                yield kind, name


@dataclass(frozen=True)
class Subject:
    """Options for the clients of an access control list."""

    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address of the client; `*`: any.")] = "*"
    deny: Annotated[bool, typer.Option("--deny", help="Forbid instead of allow; that takes precedence.")] = False

    @property
    def permission(self) -> AclPermissionType:
        return AclPermissionType.DENY if self.deny else AclPermissionType.ALLOW


@app.command("list")
@grouped
def list_(as_json: AsJson = False, *, connection: Connection) -> None:
    """List all access control lists."""

    async def work(admin: Admin) -> list[AclBinding]:
        return await admin.describe_acls()

    rows = sorted(_row(each) for each in with_admin(connection, work))
    titles = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
    if as_json:
        show_json([dict(zip(titles, row, strict=True)) for row in rows])
    else:
        show_table(titles, rows)


@app.command()
@grouped
def add(
    principal: User, operations: Operations = None, *, subject: Subject, resources: Resources, connection: Connection
) -> None:
    """Allow a user operations on resources, or deny them."""
    bindings = list(_bindings(principal, subject, operations, resources))

    async def work(admin: Admin) -> None:
        await admin.create_acls(bindings)

    with_admin(connection, work)
    show_text("\n".join(f"added: {binding}" for binding in bindings))


@app.command()
@grouped
def remove(
    principal: User, operations: Operations = None, *, subject: Subject, resources: Resources, connection: Connection
) -> None:
    """Remove access control lists that `add` with the same arguments added."""
    filters = [binding.to_filter() for binding in _bindings(principal, subject, operations, resources)]

    async def work(admin: Admin) -> list[AclBinding]:
        found = await admin.delete_acls(filters)
        return [binding for bindings in found.values() for binding in bindings]

    removed = with_admin(connection, work)
    show_text("\n".join(f"removed: {binding}" for binding in removed) or "nothing matches")


@app.command()
@grouped
def check(
    principal: User,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="E.g. read; `list` names those of ACLs.")],
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Address of the client; default: any.")
    ] = None,
    as_json: AsJson = False,
    *,
    resources: Resources,
    connection: Connection,
) -> None:
    """Report whether a user may do an operation on a resource, and the rule that decides; exit code 1 if not.

    Super users are known for the cluster in --data only.
    """
    from barnabas.security.acl_check import Question, Verdict, ask
    from barnabas.security.node_rules import NodeRules, rules_of

    named = list(resources.named())
    if not named or resources.prefixed:
        raise WrongArgument("needs --topic, --group, --transactional-id, --user or --cluster, without --prefixed")
    chosen = _operation(operation)
    questions = [Question(_principal(principal), chosen, kind, name, host or "*") for kind, name in named]
    rules = rules_of(connection.data) if connection.is_local else NodeRules()

    async def work(admin: Admin) -> list[Verdict]:
        return [await ask(admin, question, rules) for question in questions]

    verdicts = with_admin(connection, work)
    if as_json:
        show_json([each.to_json() for each in verdicts])
    else:
        show_text("\n".join(map(str, verdicts)))
    if not all(each.allowed for each in verdicts):
        raise typer.Exit(1)


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _operation(name: str) -> AclOperation:
    """Raises `WrongArgument`."""
    if name.lower() not in _OPERATIONS:
        raise WrongArgument(f"{name} is no operation; allowed: {', '.join(_OPERATIONS)}")
    return _OPERATIONS[name.lower()]


def _bindings(
    principal: str, subject: Subject, operations: list[str] | None, resources: Resources
) -> Iterator[AclBinding]:
    """Raises `WrongArgument`."""
    from barnabas.client.admin.acl_values import AclBinding

    named = list(resources.named())
    if not named:
        raise WrongArgument("needs --topic, --group, --transactional-id, --user or --cluster")
    for operation in operations or ["all"]:
        chosen = _operation(operation)
        for kind, name in named:
            yield AclBinding(
                kind,
                name,
                _principal(principal),
                chosen,
                subject.permission,
                subject.host,
                PatternType.LITERAL if kind is AclResourceType.CLUSTER else resources.pattern_type,
            )


def _row(binding: AclBinding) -> tuple[str, ...]:
    return (
        binding.resource_type.name.lower(),
        binding.resource_name,
        binding.pattern_type.name.lower(),
        binding.principal,
        binding.host,
        binding.operation.name.lower(),
        binding.permission_type.name.lower(),
    )
