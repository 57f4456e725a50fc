"""`CurrentSettings`: the settings of a broker as they hold now, with dynamic configs applied."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.settings.broker import BrokerSettings

CurrentSettings = Callable[[], BrokerSettings]
