"""Core: keys of OAUTHBEARER that are not among Kafka's settings."""

from __future__ import annotations

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""In Kafka, a property of the Java virtual machine: the URLs that keys and tokens may come from."""

ALLOWED_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"
"""Likewise: the files that assertions, their keys and their templates may come from."""

UNSECURED_TOKENS = "barnabas.oauthbearer.unsecured.tokens"
"""A key that Kafka does not have: `true` accepts tokens without signatures, as Kafka does by default."""

KEYS_OF_OAUTH = frozenset({ALLOWED_URLS, ALLOWED_FILES, UNSECURED_TOKENS})
