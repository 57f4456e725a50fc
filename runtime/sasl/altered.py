"""Core: the mechanisms of a running listener, by its dynamic configs (KIP-226).

PLAIN gets other users; PLAIN and SCRAM are enabled and taken away. OAUTHBEARER and GSSAPI have logins and tasks that
are made when the node starts: they are only taken away, and enabled again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from barnabas.protocol.sasl.mechanism import ServerMechanisms
from barnabas.protocol.sasl.plain import PLAIN
from barnabas.protocol.sasl.scram_credentials import SCRAM_MECHANISMS
from barnabas.protocol.sasl.session import SessionRules
from barnabas.runtime.sasl.options import SaslOptions, SaslOptionsError
from barnabas.settings.listener_values import JAAS_KEY, MECHANISMS_KEY

MakeMechanisms = Callable[[SaslOptions], ServerMechanisms]
"""Raises SaslOptionsError."""


class AlterableMechanisms:
    """The mechanisms of one listener."""

    def __init__(
        self, options: SaslOptions, made: ServerMechanisms, make: MakeMechanisms, required: str | None = None
    ) -> None:
        """`options` and `made` are those of the start. `required` stays enabled: the node's own channels use it."""
        self._started_with = options
        self._made = dict(made)
        self._make = make
        self._required = required

    def rules(self, values: Mapping[str, str]) -> SessionRules:
        """The rules by the present values of the listener. Raises SaslOptionsError."""
        options = SaslOptions.of(values)
        if self._required is not None and self._required not in options.mechanisms:
            raise SaslOptionsError(
                f"{MECHANISMS_KEY} must have {self._required}, by which brokers log in to each other; got"
                f" {', '.join(options.mechanisms)}"
            )
        mechanisms = {name: self._mechanism(name, options)[name] for name in options.mechanisms}
        return SessionRules(mechanisms, options.max_reauth_ms, options.max_receive_bytes)

    def _mechanism(self, name: str, options: SaslOptions) -> ServerMechanisms:
        if name == PLAIN:
            return self._make(replace(options, mechanisms=(PLAIN,)))
        if name in SCRAM_MECHANISMS:
            if name not in self._made:
                self._made |= self._make(replace(options, mechanisms=(name,)))
            return self._made
        if name not in self._made:
            raise SaslOptionsError(f"the mechanism {name} cannot be enabled on a running listener; restart the node")
        if options.modules.get(name) != self._started_with.modules.get(name):
            key = f"{name.lower()}.{JAAS_KEY}"
            raise SaslOptionsError(f"{key} cannot be altered on a running listener; restart the node")
        return self._made
