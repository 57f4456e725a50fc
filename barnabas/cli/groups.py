"""`barnabas groups`: groups, their members, offsets and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion, group_offsets
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, Styled, show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument
from barnabas.group_views.progress import Progress, progress_of

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, GroupListing, MemberToRemove, Results
    from barnabas.client.cluster import TopicPartition
    from barnabas.group_views.kinds import GroupView

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
        typer.Option("--type", help="List only groups of this type: classic, consumer, share, streams; repeatable."),
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
    members: Annotated[
        bool, typer.Option("--members", help="Show members and their assignments; tasks of a streams group.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Show state, coordinator, assignor and epochs.")] = False,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Show committed offset, end offset, lag in records and seconds, and owner of each partition; the start offset of a
    share group."""
    if members and state:
        raise WrongArgument("--members and --state exclude each other")
    ids = list(dict.fromkeys(groups))

    async def work(admin: Admin) -> tuple[Results[str, GroupView], dict[str, list[Progress]]]:
        from barnabas.group_views.kinds import describe_groups

        described = await describe_groups(admin, ids)
        if not as_json and (members or state):
            return described, {}
        offsets = {}
        for name, group in described.succeeded.items():
            offsets[name] = await progress_of(admin, name, group.assigned(), is_shared=group.is_share)
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
    member: Annotated[
        list[str] | None, typer.Option("--member", metavar="ID", help="Member to remove, by member id; repeatable.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Remove all current members.")] = False,
    *,
    connection: Connection,
) -> None:
    """Remove members from a group of any type; what they have goes to the others. A member that is alive joins again.
    """
    if everybody == bool(instance or member):
        raise WrongArgument("needs --instance ID, --member ID or --all")

    async def work(admin: Admin) -> Results[MemberToRemove, None]:
        from barnabas.client.admin import MemberToRemove

        named = [*map(MemberToRemove, instance or ()), *(MemberToRemove(member_id=it) for it in member or ())]
        return await admin.remove_members(group, None if everybody else named, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for each in results.succeeded:
        show_text(f"removed {each}")
    account.failures(results.errors)
    account.close()


def _show_offsets(groups: Sequence[GroupView], offsets: Mapping[str, Sequence[Progress]]) -> None:
    from barnabas.client.cluster import TopicPartition

    rows = []
    for group in groups:
        owners = group.owners()
        for each in offsets[group.group_id]:
            owner = owners.get(TopicPartition(each.topic, each.partition))
            lag = Styled(str(each.lag), "yellow") if each.lag else each.lag
            behind = None if each.lag_seconds is None else f"{each.lag_seconds:.1f}"
            who = ("", "", "") if owner is None else (owner.member_id, owner.host, owner.client_id)
            rows.append((group.group_id, each.topic, each.partition, each.committed, each.end, lag, behind, *who))
    titles = ("group", "topic", "partition", "committed", "end", "lag", "lag s", "member", "host", "client")
    show_table(titles, rows)


def _show_members(groups: Sequence[GroupView]) -> None:
    from barnabas.group_views.kinds import tasks_text

    streams = [group for group in groups if group.is_streams]
    others = [group for group in groups if not group.is_streams]
    if others or not streams:
        rows = [
            (
                group.group_id,
                member.member_id,
                member.instance_id,
                member.host,
                member.client_id,
                len(member.assignment),
                _partitions_text(member.assignment),
            )
            for group in others
            for member in group.members
        ]
        show_table(("group", "member", "instance", "host", "client", "partitions", "which"), rows)
    if streams:
        of_streams = [
            (
                group.group_id,
                member.member_id,
                member.instance_id,
                member.host,
                member.client_id,
                member.process_id,
                member.epoch,
                *(tasks_text(member.tasks[kind]) for kind in ("active", "standby", "warmup")),
            )
            for group in streams
            for member in group.members
        ]
        titles = ("group", "member", "instance", "host", "client", "process", "epoch", "active", "standby", "warmup")
        show_table(titles, of_streams)


def _show_states(groups: Sequence[GroupView]) -> None:
    rows = [
        (
            group.group_id,
            group.state,
            group.type,
            group.coordinator,
            group.assignor,
            group.epoch,
            group.target_epoch,
            group.topology_epoch,
            len(group.members),
        )
        for group in groups
    ]
    titles = ("group", "state", "type", "coordinator", "assignor", "epoch", "target epoch", "topology", "members")
    show_table(titles, rows)


def _group_json(group: GroupView, offsets: Sequence[Progress]) -> dict[str, Any]:
    from barnabas.group_views.kinds import member_json

    return {
        "group_id": group.group_id,
        "state": group.state,
        "type": group.type,
        "coordinator": group.coordinator,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "topology_epoch": group.topology_epoch,
        "members": [member_json(member) for member in group.members],
        "offsets": [each.to_json() for each in offsets],
    }


def _partitions_text(partitions: Sequence[TopicPartition]) -> str:
    topics: dict[str, list[int]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(each.partition)
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items())


app.command("reset-offsets")(group_offsets.reset_offsets)
app.command("delete-offsets")(group_offsets.delete_offsets)
