"""Kerberos by the GSSAPI of the system: the extra `gssapi`. Loads that module only where it is used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import trio

from barnabas.protocol.sasl.gssapi import MECHANISM, GssapiClient, GssapiServer, GssError
from barnabas.protocol.sasl.kerberos_names import KerberosName, ShortNames
from barnabas.protocol.sasl.mechanism import ClientMechanismFactory
from barnabas.runtime.sasl.prepared import NotPrepared
from barnabas.runtime.world import RunBlocking
from barnabas.settings.errors import SettingsError

log = logging.getLogger(__name__)

T = TypeVar("T")

LOGIN_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE_NAME = "sasl.kerberos.service.name"
LOCAL_RULES = "sasl.kerberos.principal.to.local.rules"

_caches = count()


def gssapi_module() -> Any:
    """Raises SettingsError if it is not installed."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise SettingsError(f"GSSAPI needs the extra barnabas[gssapi] and MIT Kerberos ({error})") from None
    return gssapi


class KerberosContext:
    """A GssContext of MIT Kerberos."""

    def __init__(self, gssapi: Any, context: Any) -> None:
        self._error = gssapi.exceptions.GSSError
        self._context = context
        # Otherwise python-gssapi returns a token that explains the error to the peer, and fails at the next step.
        self._context.__DEFER_STEP_ERRORS__ = False

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        return self._done(lambda: self._context.step(token or None)) or b""

    def wrap(self, message: bytes) -> bytes:
        return self._done(lambda: self._context.wrap(message, False).message)

    def unwrap(self, token: bytes) -> bytes:
        return self._done(lambda: self._context.unwrap(token).message)

    def _done(self, work: Callable[[], bytes]) -> bytes:
        try:
            return work()
        except self._error as error:
            raise GssError(_shown(error)) from None


@dataclass(frozen=True, slots=True)
class KerberosListener:
    """GSSAPI of one listener."""

    gssapi: Any
    credentials: Any
    names: ShortNames

    def mechanism(self) -> GssapiServer:
        """Begin an exchange."""
        context = self.gssapi.SecurityContext(creds=self.credentials, usage="accept")
        return GssapiServer(
            KerberosContext(self.gssapi, context),
            self.names,
            lambda reason: log.info("GSSAPI failed: %s", reason),
        )


def kerberos_listener(values: Mapping[str, str], options: Mapping[str, str]) -> KerberosListener:
    """GSSAPI by the values of a listener and by the options of its Krb5LoginModule: `keyTab` and `principal`. Raises
    SettingsError."""
    gssapi = gssapi_module()
    principal, keytab = _required(options, "principal"), options.get("keyTab", "").strip()
    try:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(
            name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store={"keytab": keytab} if keytab else None
        )
        default_realm = _default_realm(gssapi, principal)
    except gssapi.exceptions.GSSError as error:
        raise SettingsError(f"the keys of {principal} cannot be used: {_shown(error)}", "keyTab", keytab) from None
    try:
        names = ShortNames(_rules(values), default_realm)
    except ValueError as error:
        raise SettingsError(str(error), LOCAL_RULES) from None
    return KerberosListener(gssapi, credentials, names)


class KerberosLogin:
    """Begins exchanges with the tickets of one principal: a ClientMechanismFactory."""

    def __init__(self, gssapi: Any, run_blocking: RunBlocking, service: str, options: Mapping[str, str]) -> None:
        self._gssapi = gssapi
        self._run_blocking = run_blocking
        self._service = service
        self._principal = options.get("principal", "").strip() or None
        self._keytab = options.get("keyTab", "").strip() or None
        self._one_at_a_time = trio.Lock()
        """A centre that does not answer holds one thread, not all: others wait for the disk in them."""
        self._cache = f"MEMORY:barnabas-{next(_caches)}"

    def __call__(self, host: str) -> KerberosExchange:
        return KerberosExchange(lambda: self._context(host), self._in_thread)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._one_at_a_time:
            return await self._run_blocking(work)

    def _context(self, host: str) -> KerberosContext:
        """Raises GssError. Talks to the key distribution centre when it takes its first step."""
        gssapi = self._gssapi
        kerberos = gssapi.MechType.kerberos
        try:
            name = self._principal and gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
            store = None
            if self._keytab is not None:
                # Tickets by a keytab are in memory: a cache of another program is left alone.
                store = {"client_keytab": self._keytab, "ccache": self._cache}
            credentials = gssapi.Credentials(name=name, usage="initiate", mechs=[kerberos], store=store)
            target = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
            flags = gssapi.RequirementFlag
            context = gssapi.SecurityContext(
                name=target,
                creds=credentials,
                usage="initiate",
                mech=kerberos,
                flags=[flags.mutual_authentication, flags.integrity, flags.out_of_sequence_detection],
            )
        except gssapi.exceptions.GSSError as error:
            raise GssError(_shown(error)) from None
        return KerberosContext(gssapi, context)


class KerberosExchange:
    """The client's side of one exchange: a ClientMechanism and a PreparedMechanism."""

    name = MECHANISM

    def __init__(self, begin: Callable[[], KerberosContext], run_blocking: RunBlocking) -> None:
        self._begin = begin
        self._run_blocking = run_blocking
        self._exchange: GssapiClient | None = None
        self._first = b""

    async def prepare(self) -> None:
        """Get the ticket for the service, away from the loop: it may come from another machine. Raises NotPrepared."""

        def work() -> tuple[GssapiClient, bytes]:
            context = self._begin()
            first = context.step(b"")
            return GssapiClient(context), first

        try:
            self._exchange, self._first = await self._run_blocking(work)
        except GssError as error:
            raise NotPrepared(f"no ticket of Kerberos: {error}") from None

    @property
    def complete(self) -> bool:
        return self._exchange is not None and self._exchange.complete

    def first(self) -> bytes:
        assert self._exchange is not None, "prepare() comes first"
        return self._first

    def receive(self, challenge: bytes) -> bytes | None:
        assert self._exchange is not None, "prepare() comes first"
        return self._exchange.receive(challenge)


def kerberos_login(
    values: Mapping[str, str], options: Mapping[str, str], run_blocking: RunBlocking
) -> ClientMechanismFactory:
    """GSSAPI of a client by its values and by the options of its Krb5LoginModule: `keyTab` and `principal`, or the
    tickets that `kinit` left. Raises SettingsError."""
    service = (values.get(SERVICE_NAME) or options.get("serviceName") or "").strip()
    if not service:
        raise SettingsError(
            "missing, and GSSAPI needs it", SERVICE_NAME, allowed="the first part of the brokers' names"
        )
    if options.get("keyTab", "").strip():
        _required(options, "principal")
    return KerberosLogin(gssapi_module(), run_blocking, service, options)


def _required(options: Mapping[str, str], name: str) -> str:
    value = options.get(name, "").strip()
    if not value:
        raise SettingsError(f"the option {name} of {LOGIN_MODULE} is missing", "sasl.jaas.config")
    return value


def _rules(values: Mapping[str, str]) -> list[str]:
    rules = [rule.strip() for rule in values.get(LOCAL_RULES, "DEFAULT").split(",")]
    return [rule for rule in rules if rule]


def _default_realm(gssapi: Any, principal: str) -> str:
    """The realm of the system's configuration; without one, the realm of the listener's own principal."""
    try:
        name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
        return KerberosName.parse(str(name)).realm or ""
    except gssapi.exceptions.GSSError:
        return KerberosName.parse(principal).realm or ""


def _shown(error: Any) -> str:
    """The reason in one line. python-gssapi's own text has several parts, and may show the token."""
    is_minor = bool(error.min_code)
    reasons = error.get_all_statuses(error.min_code if is_minor else error.maj_code, not is_minor)
    return " ".join(" ".join(map(str, reasons)).split()) or type(error).__name__
