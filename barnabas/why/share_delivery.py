"""Core: why a share group gets a record or a partition, or does not get it now, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.why.shares_view import SharePartition, SharesView, Span

MOST_SPANS = 10
MOST_PARTITIONS = 20
MOST_MEMBERS = 5

Time = Callable[[int], str]
"""Text of a time in milliseconds."""


def why_group(view: SharesView, time: Time) -> list[str]:
    """The group in short: members, and each partition that is in use."""
    lines = list(_members(view))
    found = sorted(view.partitions.values(), key=lambda it: (it.topic, it.partition))
    lines += [f"{it.name}: {_position(it)}" for it in found[:MOST_PARTITIONS]]
    if len(found) > MOST_PARTITIONS:
        lines.append(f"… and {len(found) - MOST_PARTITIONS} more partitions")
    for it in found:
        if it.error:
            lines.append(_store_error(it, time))
    for (topic, partition), failed in sorted(view.not_loaded.items()):
        lines.append(f"{topic}-{partition}: {_not_loaded(failed.error, time(failed.at_ms))}")
    return lines


def why_partition(view: SharesView, topic: str, partition: int, time: Time) -> list[str]:
    """Which records of the partition are delivered, to whom, and what holds the others back."""
    name = f"{topic}-{partition}"
    lines = list(_assigned(view, topic, partition))
    found = view.partitions.get((topic, partition))
    if found is None or not found.is_loaded:
        return [*lines, *_not_in_use(view, topic, partition, time)]
    lines.append(f"{name}: {_position(found)}")
    lines += _held_back(found, time)
    for span in found.spans[:MOST_SPANS]:
        lines.append(f"{span.offsets}: {_span(view, found, span, time)}")
    left = max(len(found.spans) - MOST_SPANS, 0) + found.spans_left_out
    if left:
        lines.append(f"… and {left} more groups of records in flight; name one with --offset")
    return lines


def why_record(view: SharesView, topic: str, partition: int, offset: int, time: Time) -> list[str]:
    """The state of one record, first."""
    found = view.partitions.get((topic, partition))
    if found is None or not found.is_loaded:
        return [*_not_in_use(view, topic, partition, time), *_assigned(view, topic, partition)]
    lines = [f"offset {offset}: {_record(view, found, offset, time)}"]
    lines += _assigned(view, topic, partition)
    lines.append(f"{found.name}: {_position(found)}")
    lines += _held_back(found, time)
    return lines


# -- members


def _members(view: SharesView) -> Iterator[str]:
    if not view.coordinator:
        yield f"no broker that answers coordinates share group {view.group_id}"
    elif not view.members:
        yield f"share group {view.group_id} has no members; it is {view.state}"
    else:
        count = len(view.members) + view.members_left_out
        yield f"share group {view.group_id} is {view.state} with {count} members, epoch {view.epoch}"


def _assigned(view: SharesView, topic: str, partition: int) -> Iterator[str]:
    name = f"{topic}-{partition}"
    members = view.assigned_to(topic, partition)
    if members:
        shown = ", ".join(map(str, members[:MOST_MEMBERS]))
        more = f" and {len(members) - MOST_MEMBERS} more" if len(members) > MOST_MEMBERS else ""
        yield f"{name} is assigned to {shown}{more}"
    elif not view.coordinator or not view.members:
        yield from _members(view)
    elif partition not in view.initialized.get(topic, ()):
        subscribed = any(topic in it.topics for it in view.members.values())
        if subscribed:
            yield f"{name} is assigned to nobody: the share coordinator has not initialized its state yet"
        else:
            yield f"{name} is assigned to nobody: no member subscribes to {topic}"
    else:
        yield f"{name} is assigned to none of the {len(view.members)} members"


# -- partitions


def _position(it: SharePartition) -> str:
    if not it.is_loaded:
        return "its state is being read from the share coordinator"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(it.counts.items()) if count)
    flying = f"in flight are {counts}" if counts else "nothing is in flight"
    waiting = max(it.high_watermark - it.end_offset, 0)
    return (
        f"start offset {it.start_offset}, end offset {it.end_offset}, high watermark {it.high_watermark}; "
        f"{flying}; {waiting} records were never acquired"
    )


def _held_back(it: SharePartition, time: Time) -> Iterator[str]:
    if it.error:
        yield _store_error(it, time)
    if not it.can_acquire:
        yield (
            f"{it.name}: nothing more is delivered until records are acknowledged: "
            f"share.partition.max.record.locks allows {it.max_record_locks} in flight"
        )
    if it.read_committed and it.last_stable_offset < it.high_watermark:
        yield (
            f"{it.name}: an open transaction holds back records from offset {it.last_stable_offset} on, "
            "because share.isolation.level is read_committed"
        )


def _store_error(it: SharePartition, time: Time) -> str:
    return (
        f"{it.name}: the last acknowledgements could not be stored by the share coordinator: "
        f"{it.error} at {time(it.error_at_ms)}"
    )


def _not_loaded(error: str, when: str) -> str:
    return f"its state could not be read from the share coordinator: {error} at {when}"


def _not_in_use(view: SharesView, topic: str, partition: int, time: Time) -> Iterator[str]:
    name = f"{topic}-{partition}"
    failed = view.not_loaded.get((topic, partition))
    if failed is not None:
        yield f"{name}: {_not_loaded(failed.error, time(failed.at_ms))}"
    elif (topic, partition) in view.partitions:
        yield f"{name}: its state is being read from the share coordinator"
    else:
        yield f"{name}: no member fetches it from a leader that answers"


# -- records


def _record(view: SharesView, it: SharePartition, offset: int, time: Time) -> str:
    if offset < it.log_start_offset:
        return f"removed from the log, which begins at {it.log_start_offset}"
    if offset < it.start_offset:
        return f"done: accepted, rejected or given up; the start offset is {it.start_offset}"
    if offset >= it.high_watermark:
        return f"not committed: the high watermark is {it.high_watermark}"
    if it.read_committed and offset >= it.last_stable_offset:
        return f"held back by an open transaction, from offset {it.last_stable_offset} on"
    if offset >= it.end_offset:
        return f"never acquired; {offset - it.end_offset} records are before it from offset {it.end_offset} on"
    span = it.span_of(offset)
    return "no record" if span is None else _span(view, it, span, time)


def _span(view: SharesView, it: SharePartition, span: Span, time: Time) -> str:
    times = "once" if span.delivery_count == 1 else f"{span.delivery_count} times"
    match span.state:
        case "available" if span.delivery_count <= 0:
            return "available, and not delivered yet"
        case "available":
            return f"available again; delivered {times} of {it.delivery_count_limit}, and released, or its lock expired"
        case "acquired":
            member = view.members.get(span.member_id)
            who = span.member_id if member is None else str(member)
            storing = f"; it becomes {span.becomes} when that is stored" if span.becomes else ""
            return (
                f"acquired by {who} since {time(span.since_ms)}; delivered {times} of {it.delivery_count_limit}; "
                f"its lock ends at {time(span.lock_ends_ms)}{storing}"
            )
        case "waiting":
            until = time(span.lock_ends_ms)
            return f"delivered {times} of {it.delivery_count_limit}, and available again from {until} on"
        case "archiving":
            return f"rejected or given up after it was delivered {times}; the dead-letter topic gets its copy"
        case "acknowledged":
            return f"accepted; delivered {times}"
        case "archived" if 0 < it.delivery_count_limit <= span.delivery_count:
            return f"given up: delivered {times}, as share.delivery.count.limit allows, or rejected"
        case "archived":
            return f"archived: rejected, or no record for a client; delivered {times}"
        case _:
            return span.state or "in an unknown state"
