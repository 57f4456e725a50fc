"""Core: removes expired delegation tokens (KIP-48)."""

from __future__ import annotations

from barnabas.kraft.controller.state import ControllerState, Steps
from barnabas.protocol.messages.metadata_log import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind, cut

MAX_SWEPT_AT_ONCE = 1000


def sweep_expired_tokens(state: ControllerState) -> Steps[list[Message]]:
    """Remove expired tokens, some at a time."""
    records: list[Message] = []
    for token in state.image.others.delegation_tokens.values():
        if is_expired(token, state.asked.at_ms):
            records.append(RemoveDelegationTokenRecord(token_id=token.token_id))
            note_token(state, token, "is removed", cause="it is expired")
            if len(records) >= MAX_SWEPT_AT_ONCE:
                break
        if state.pace.is_full():
            yield None
    return records


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def note_token(state: ControllerState, token: DelegationTokenRecord, done: str, cause: str = "") -> None:
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"token {token.token_id}",
        f"the delegation token {token.token_id} of {cut(token.owner)} {done}",
        cause=cause or f"{cut(str(state.asked.by))} asked for it",
    )
