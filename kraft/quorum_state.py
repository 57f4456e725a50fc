"""The `quorum-state` file: the election state of a replica of the metadata log.

One line of JSON as Kafka writes it: data version 0 while `kraft.version` is 0, data version 1, with the
directory id of the candidate voted for, from `kraft.version` 1 on. A file that cannot be read stops the node:
a guessed vote could elect two leaders.
"""

from __future__ import annotations

import json

from barnabas.kraft.raft.roles import ElectionState
from barnabas.kraft.raft.voters import NO_DIRECTORY, ReplicaKey
from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.runtime.world import Disk
from barnabas.storage.checkpoints import write_durably

FILE_NAME = "quorum-state"


class CorruptQuorumState(Exception):
    """The file does not hold an election state; the message names the file and the fault."""


class QuorumStateFile:
    """The file in the metadata log's directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"

    def read(self) -> ElectionState:
        """The state as last written; the initial one if there is no file. Raises CorruptQuorumState,
        OSError."""
        if not self._disk.exists(self._path):
            return ElectionState()
        try:
            data = json.loads(self._disk.read_bytes(self._path))
            version = data["data_version"]
            if version not in (0, 1):
                raise CorruptQuorumState(f"{self._path}: data_version {version} is neither 0 nor 1")
            leader_id, epoch, voted_id = int(data["leaderId"]), int(data["leaderEpoch"]), int(data["votedId"])
            directory_id = NO_DIRECTORY
            if version == 1:
                directory_id = uuid_from_string(data["votedDirectoryId"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptQuorumState(f"{self._path}: {error!r}") from error
        if epoch < 0 or leader_id < -1 or voted_id < -1:
            raise CorruptQuorumState(f"{self._path}: epoch {epoch}, leader {leader_id}, voted {voted_id}")
        return ElectionState(
            epoch=epoch,
            leader_id=None if leader_id == -1 else leader_id,
            voted=None if voted_id == -1 else ReplicaKey(voted_id, directory_id),
        )

    def write(self, state: ElectionState, voter_ids: tuple[int, ...], data_version: int = 0) -> None:
        """Replace the file durably: once this returns, no crash brings the old state back. Raises OSError."""
        write_durably(self._disk, self._path, self.encode(state, voter_ids, data_version))

    @staticmethod
    def encode(state: ElectionState, voter_ids: tuple[int, ...], data_version: int = 0) -> bytes:
        """The content of the file; `data_version` is the level of `kraft.version`."""
        leader_id = -1 if state.leader_id is None else state.leader_id
        voted_id = -1 if state.voted is None else state.voted.id
        fields: dict[str, object] = {"leaderId": leader_id, "leaderEpoch": state.epoch, "votedId": voted_id}
        if data_version == 0:
            fields = {"clusterId": ""} | fields
            fields["appliedOffset"] = 0
            fields["currentVoters"] = [{"voterId": voter_id} for voter_id in voter_ids]
        else:
            directory_id = NO_DIRECTORY if state.voted is None else state.voted.directory_id
            fields["votedDirectoryId"] = uuid_to_string(directory_id)
        fields["data_version"] = data_version
        return json.dumps(fields, separators=(",", ":")).encode()
