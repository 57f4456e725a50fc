"""`barnabas groups`: groups, their members, offsets and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion, group_offsets
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.group_progress import Progress, progress_of
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, Styled, show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import (
        Admin,
        ConsumerGroupDescription,
        GroupListing,
        MemberDescription,
        MemberToRemove,
        Results,
    )
    from barnabas.client.cluster import TopicPartition

app = typer.Typer(help="List, describe, reset and delete groups and their offsets.", rich_markup_mode=None)

Group = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=completion.groups)]
Groups = Annotated[list[str], typer.Argument(metavar="GROUP...", autocompletion=completion.groups)]


@app.command("list")
@grouped
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="List only groups in this state: Stable, Empty, …; repeatable.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", help="List only groups of this type: classic, consumer, share, …; repeatable."),
    ] = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """List groups."""

    async def work(admin: Admin) -> list[GroupListing]:
        return await admin.list_groups(states=state or (), types=kind or ())

    listings = with_admin(connection, work)
    if as_json:
        show_json(
            [
                {"group_id": each.group_id, "type": each.type, "protocol": each.protocol, "state": each.state}
                for each in listings
            ]
        )
    else:
        rows = [(each.group_id, each.type, each.protocol, each.state) for each in listings]
        show_table(("group", "type", "protocol", "state"), rows)


@app.command()
@grouped
def describe(
    groups: Groups,
    members: Annotated[bool, typer.Option("--members", help="Show members and their assignments.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show state, coordinator and assignor.")] = False,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Show committed offset, end offset, lag and owner of each partition; the start offset of a share group."""
    if members and state:
        raise WrongArgument("--members and --state exclude each other")
    ids = list(dict.fromkeys(groups))

    async def work(admin: Admin) -> tuple[Results[str, ConsumerGroupDescription], dict[str, list[Progress]]]:
        from barnabas.cli.group_kinds import describe_groups

        described = await describe_groups(admin, ids)
        if not as_json and (members or state):
            return described, {}
        offsets = {}
        for name, group in described.succeeded.items():
            assigned = [partition for member in group.members for partition in member.assignment]
            offsets[name] = await progress_of(admin, name, assigned, is_shared=_is_shared(group))
        return described, offsets

    described, offsets = with_admin(connection, work)
    account = Account()
    account.failures(described.errors)
    found = list(described.succeeded.values())
    if as_json:
        groups_json = [_group_json(each, offsets[each.group_id]) for each in found]
        show_json({"groups": groups_json, "errors": account.errors})
    elif members:
        _show_members(found)
    elif state:
        _show_states(found)
    else:
        _show_offsets(found, offsets)
    account.close()


@app.command()
@grouped
def delete(groups: Groups, *, connection: Connection) -> None:
    """Delete empty groups and their offsets."""

    async def work(admin: Admin) -> Results[str, None]:
        return await admin.delete_groups(groups, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for name in results.succeeded:
        show_text(f"deleted {name}")
    account.failures(results.errors)
    account.close()


@app.command("remove-members")
@grouped
def remove_members(
    group: Group,
    instance: Annotated[
        list[str] | None,
        typer.Option("--instance", metavar="ID", help="Static member to remove, by group.instance.id; repeatable."),
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Remove all current members.")] = False,
    *,
    connection: Connection,
) -> None:
    """Remove members from a group; their partitions go to the others."""
    if everybody == bool(instance):
        raise WrongArgument("needs --instance ID or --all")

    async def work(admin: Admin) -> Results[MemberToRemove, None]:
        members = None if everybody else instance
        return await admin.remove_members_from_consumer_group(group, members, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for member in results.succeeded:
        show_text(f"removed {member}")
    account.failures(results.errors)
    account.close()


def _show_offsets(groups: Sequence[ConsumerGroupDescription], offsets: Mapping[str, Sequence[Progress]]) -> None:
    from barnabas.client.cluster import TopicPartition

    rows = []
    for group in groups:
        owners = _owners(group)
        for each in offsets[group.group_id]:
            owner = owners.get(TopicPartition(each.topic, each.partition))
            lag = Styled(str(each.lag), "yellow") if each.lag else each.lag
            who = ("", "", "") if owner is None else (owner.member_id, owner.host, owner.client_id)
            rows.append((group.group_id, each.topic, each.partition, each.committed, each.end, lag, *who))
    titles = ("group", "topic", "partition", "committed", "end", "lag", "member", "host", "client")
    show_table(titles, rows)


def _show_members(groups: Sequence[ConsumerGroupDescription]) -> None:
    rows = [
        (
            group.group_id,
            member.member_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            len(member.assignment),
            _partitions_text(member.assignment),
        )
        for group in groups
        for member in group.members
    ]
    show_table(("group", "member", "instance", "host", "client", "partitions", "which"), rows)


def _show_states(groups: Sequence[ConsumerGroupDescription]) -> None:
    rows = [
        (
            group.group_id,
            group.state,
            group.type,
            None if group.coordinator is None else group.coordinator.node_id,
            group.partition_assignor,
            group.group_epoch,
            len(group.members),
        )
        for group in groups
    ]
    show_table(("group", "state", "type", "coordinator", "assignor", "epoch", "members"), rows)


def _is_shared(group: ConsumerGroupDescription) -> bool:
    from barnabas.client.admin import GroupType

    return group.type is GroupType.SHARE


def _owners(group: ConsumerGroupDescription) -> dict[TopicPartition, MemberDescription]:
    """Empty for a share group, whose members read the same partitions."""
    if _is_shared(group):
        return {}
    return {partition: member for member in group.members for partition in member.assignment}


def _group_json(group: ConsumerGroupDescription, offsets: Sequence[Progress]) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "state": group.state,
        "type": group.type,
        "coordinator": None if group.coordinator is None else group.coordinator.node_id,
        "assignor": group.partition_assignor,
        "epoch": group.group_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": [{"topic": each.topic, "partition": each.partition} for each in member.assignment],
            }
            for member in group.members
        ],
        "offsets": [each.to_json() for each in offsets],
    }


def _partitions_text(partitions: Sequence[TopicPartition]) -> str:
    topics: dict[str, list[int]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(each.partition)
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items())


app.command("reset-offsets")(group_offsets.reset_offsets)
app.command("delete-offsets")(group_offsets.delete_offsets)
