"""Keys that are read and checked, but that no code acts on yet; a node logs a warning if one is set.

`tests/settings/test_effects.py` compares the list with the code: remove a key here when it gets an effect.
"""

WITHOUT_EFFECT_YET = frozenset(
    [
        "controller.performance.always.log.threshold.ms",
        "controller.performance.sample.period.ms",
        "controller.quorum.append.linger.ms",
        "controller.socket.timeout.ms",
        "group.coordinator.append.linger.ms",
        "internal.metadata.delete.delay.millis",
        "internal.metadata.log.segment.bytes",
        "internal.metadata.max.batch.size.in.bytes",
        "log.dir.failure.timeout.ms",
        "log.initial.task.delay.ms",
        "log.preallocate",
        "metadata.max.retention.bytes",
        "metadata.max.retention.ms",
        "num.replica.fetchers",
        "offsets.load.buffer.size",
        "queued.max.requests",
        "server.max.startup.time.ms",
        "share.coordinator.append.linger.ms",
        "share.coordinator.load.buffer.size",
        "socket.connection.setup.timeout.ms",
        "socket.listen.backlog.size",
        "transaction.state.log.load.buffer.size",
        "unstable.feature.versions.enable",
    ]
)

WITHOUT_EFFECT_IN_SECURITY = frozenset(
    [
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ]
)
"""Keys of TLS and SASL that name parts of a Java virtual machine, or what is not supported."""
