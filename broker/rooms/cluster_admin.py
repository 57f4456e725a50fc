"""Questions of administrators about the cluster: configs, users, quotas, tokens, access control lists."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.client_quotas import describe_client_quotas
from barnabas.broker.apis.configs import ConfigPorts, describe_configs, incremental_alter_configs, list_config_resources
from barnabas.broker.apis.delegation_tokens import TokenPorts, change_delegation_token, describe_delegation_token
from barnabas.broker.apis.describe_cluster import ClusterPorts, describe_cluster, describe_topic_partitions
from barnabas.broker.apis.scram_users import describe_user_scram_credentials
from barnabas.kraft.acl_requests import describe_acls
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.rooms import Handlers

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts


def cluster_admin_handlers(parts: BrokerParts) -> Handlers:
    metadata = parts.metadata
    cluster = ClusterPorts(metadata, parts.current_settings)
    configs = ConfigPorts(
        parts.static.node_id,
        parts.static.raw,
        metadata,
        parts.forwarding.forward,
        tuple(parts.static.log_dirs),
        parts.security.sasl_refusal,
    )
    tokens = TokenPorts(
        metadata,
        parts.forwarding.forward,
        parts.static.listener_security_protocol_map,
        parts.static.delegation_token_secret_key or "",
    )
    change_token = partial(change_delegation_token, tokens)
    return {
        ApiKey.DESCRIBE_CLUSTER: partial(describe_cluster, cluster),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: partial(describe_topic_partitions, cluster),
        ApiKey.DESCRIBE_ACLS: partial(describe_acls, lambda: metadata.image),
        ApiKey.DESCRIBE_CONFIGS: partial(describe_configs, configs),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(incremental_alter_configs, configs),
        ApiKey.LIST_CONFIG_RESOURCES: partial(list_config_resources, configs),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(describe_user_scram_credentials, metadata),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(describe_client_quotas, metadata),
        ApiKey.CREATE_DELEGATION_TOKEN: change_token,
        ApiKey.RENEW_DELEGATION_TOKEN: change_token,
        ApiKey.EXPIRE_DELEGATION_TOKEN: change_token,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: partial(describe_delegation_token, tokens),
    }
