"""Core: the names of the settings that secure the connections of a client. Loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class SecurityOptions(TypedDict, total=False):
    """Keyword arguments that secure the connections of every client; `SecuritySettings` has their meanings."""

    security_protocol: str
    sasl_mechanism: str
    sasl_jaas_config: str
    sasl_plain_username: str
    sasl_plain_password: str
    sasl_login_callback_handler_class: Any
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_kerberos_service_name: str
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_client_credentials_client_id: str
    sasl_oauthbearer_client_credentials_client_secret: str
    sasl_oauthbearer_scope: str
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_assertion_file: str
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_private_key_file: str
    sasl_oauthbearer_assertion_private_key_passphrase: str
    sasl_oauthbearer_assertion_template_file: str
    sasl_oauthbearer_assertion_claim_aud: str
    sasl_oauthbearer_assertion_claim_iss: str
    sasl_oauthbearer_assertion_claim_sub: str
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    ssl_protocol: str
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str]
    ssl_endpoint_identification_algorithm: str
    ssl_keystore_type: str
    ssl_keystore_location: str
    ssl_keystore_password: str
    ssl_keystore_key: str
    ssl_keystore_certificate_chain: str
    ssl_key_password: str
    ssl_truststore_type: str
    ssl_truststore_location: str
    ssl_truststore_password: str
    ssl_truststore_certificates: str
