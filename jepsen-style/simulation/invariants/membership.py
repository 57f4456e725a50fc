"""The promises of who is a member of a partition, as the committed metadata change (KIP-497, KIP-841, KIP-966).

- ISR and ELR are disjoint parts of the replicas, the leader is in the ISR, epochs only grow.
- The ISR grows by whom its leader has asked for, by nobody else, and in the partition epoch that the leader knew.
- A broker that is elected was in ISR or ELR, so that it holds all that was committed; only if nobody is left in either,
  the last leader may be taken.
- No two replicas are on one host.
- Nobody is eligible beside an ISR of min.insync.replicas: what is acknowledged then need not be on them.
- No global loss: somebody is left who may lead and has lost nothing, as long as faults keep within min.insync.replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from barnabas.kraft.metadata.image import LEADER_RECOVERING, NO_LEADER, PartitionImage
from simulation.findings import Findings
from simulation.invariants.places import LeaderView, PartitionKey

Wish = tuple[int, int]
"""(leader epoch, partition epoch) in which a leader asks for another ISR."""


class MembershipPromises:
    """The promises of ISR and ELR of all partitions of one universe."""

    def __init__(
        self,
        findings: Findings,
        min_isr: Callable[[PartitionKey], int],
        lossy: Container[int],
        host_of: Callable[[int], str | None] = lambda _broker: None,
    ) -> None:
        """`min_isr`: min.insync.replicas as the newest metadata have it. `lossy`: brokers that have lost something and
        did not register again. `host_of`: the host that a broker shares with others.
        """
        self._host_of = host_of
        self._findings = findings
        self._min_isr = min_isr
        self._lossy = lossy
        self._wishes: dict[PartitionKey, dict[Wish, frozenset[int]]] = {}

    def leads(self, key: PartitionKey, view: LeaderView) -> None:
        """A leader counts on these members, or asks for them."""
        wishes = self._wishes.setdefault(key, {})
        wish = (view.leader_epoch, view.partition_epoch)
        known = wishes.get(wish, frozenset())
        if not view.maximal_isr <= known:
            wishes[wish] = known | view.maximal_isr

    def deleted(self, key: PartitionKey) -> None:
        self._wishes.pop(key, None)

    def changed(self, key: PartitionKey, before: PartitionImage | None, image: PartitionImage) -> None:
        """The committed metadata of a partition changed."""
        self._check_shape(key, image)
        self._check_somebody_left(key, image)
        if before is None:
            return
        self._check_epochs(key, before, image)
        self._check_election(key, before, image)
        self._check_growth(key, before, image)
        self._count(before, image)

    def lost_something(self, key: PartitionKey, image: PartitionImage) -> None:
        """One of its replicas has."""
        self._check_somebody_left(key, image)

    # ---- inside

    def _check_shape(self, key: PartitionKey, image: PartitionImage) -> None:
        findings = self._findings
        findings.check(
            set(image.isr) <= set(image.replicas), lambda: f"{key}: not all of the ISR are replicas: {image}"
        )
        findings.check(
            set(image.elr) <= set(image.replicas) - set(image.isr), lambda: f"{key}: ISR and ELR overlap: {image}"
        )
        findings.check(
            image.leader == NO_LEADER or image.leader in image.isr,
            lambda: f"{key}: the leader is not in the ISR: {image}",
        )
        staying = [each for each in image.replicas if each not in image.removing_replicas]
        hosts = [host for each in staying if (host := self._host_of(each)) is not None]
        findings.check(len(set(hosts)) == len(hosts), lambda: f"{key}: two replicas are on one of {hosts}: {image}")
        needed = min(self._min_isr(key), len(image.replicas))
        findings.check(
            not image.elr or len(image.isr) < needed,
            lambda: f"{key}: {image.elr} are eligible beside an ISR of min.insync.replicas, {needed}: {image}",
        )

    def _check_somebody_left(self, key: PartitionKey, image: PartitionImage) -> None:
        needed = min(self._min_isr(key), len(image.replicas))
        if image.partition_epoch == 0 and len(image.isr) < needed:
            # Created while too few brokers were active: nothing was acknowledged yet.
            return
        eligible = (*image.isr, *image.elr) or image.last_known_elr
        self._findings.check(
            any(member not in self._lossy for member in eligible),
            lambda: f"{key}: nobody is left who may lead and has lost nothing: {image}",
        )

    def _check_epochs(self, key: PartitionKey, before: PartitionImage, image: PartitionImage) -> None:
        self._findings.check(
            image.leader_epoch >= before.leader_epoch and image.partition_epoch > before.partition_epoch,
            lambda: f"{key}: epochs went back: {before}, then {image}",
        )
        self._findings.check(
            image.leader == before.leader or image.leader_epoch > before.leader_epoch,
            lambda: f"{key}: another leader in the same epoch: {before}, then {image}",
        )

    def _check_election(self, key: PartitionKey, before: PartitionImage, image: PartitionImage) -> None:
        if image.leader in (before.leader, NO_LEADER):
            return
        alone = image.isr == (image.leader,) and not image.elr
        last_known = alone and image.leader_recovery_state == LEADER_RECOVERING
        # A leader that is moved away asks for another replica, and that completes the move in one change.
        asked = self._wishes.get(key, {}).get((before.leader_epoch, before.partition_epoch), frozenset())
        moved = asked if before.leader in before.removing_replicas else frozenset()
        eligible = (*before.isr, *before.elr, *(before.last_known_elr if last_known else ()), *sorted(moved))
        self._findings.check(
            image.leader in eligible,
            lambda: f"{key}: {image.leader} is elected, and was not eligible: {before}, then {image}",
        )

    def _check_growth(self, key: PartitionKey, before: PartitionImage, image: PartitionImage) -> None:
        new = set(image.isr) - set(before.isr)
        if not new:
            return
        # An AlterPartition of a leader with a full disk lets a replica in and elects another leader in one change.
        asked = self._wishes.get(key, {}).get((before.leader_epoch, before.partition_epoch), frozenset())
        if image.leader_epoch > before.leader_epoch:
            asked |= {image.leader}
            if image.leader in before.elr:
                # All of these have every committed record; those that work are in sync with the one that is elected.
                asked |= {*before.elr}
        self._findings.check(
            new <= asked,
            lambda: f"{key}: {sorted(new)} came into the ISR, its leader asked for {sorted(asked)}: {before}, {image}",
        )

    def _count(self, before: PartitionImage, image: PartitionImage) -> None:
        findings = self._findings
        if image.leader_epoch != before.leader_epoch and image.leader != NO_LEADER:
            findings.count("partition elections")
        if set(image.isr) - set(before.isr):
            findings.count("isr expansions")
        if set(before.isr) - set(image.isr):
            findings.count("isr shrinks")
