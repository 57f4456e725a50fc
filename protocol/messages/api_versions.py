"""ApiVersions (API key 18)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    """Ask which versions of which APIs are served, and for features. It comes first on a connection, even
    before authentication; a version that is not known is answered in version 0 with error 35 (KIP-35,
    KIP-511, KIP-584, KIP-1022). Versions 0 to 4; flexible from 3."""

    client_software_name: str = field(STRING, "3+", default="", ignorable=True)
    client_software_version: str = field(STRING, "3+", default="", ignorable=True)


class ApiVersion(Struct):
    api_key: int = field(INT16, "0+", default=0)
    min_version: int = field(INT16, "0+", default=0)
    max_version: int = field(INT16, "0+", default=0)


class SupportedFeatureKey(Struct):
    name: str = field(STRING, "3+", default="")
    min_version: int = field(INT16, "3+", default=0)
    max_version: int = field(INT16, "3+", default=0)


class FinalizedFeatureKey(Struct):
    name: str = field(STRING, "3+", default="")
    max_version_level: int = field(INT16, "3+", default=0)
    min_version_level: int = field(INT16, "3+", default=0)


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    """The answer to `ApiVersionsRequest`. Versions 0 to 4; flexible from 3."""

    error_code: int = field(INT16, "0+", default=0)
    api_keys: list[ApiVersion] = field(array(ApiVersion), "0+", factory=list)
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), "3+", factory=list, tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), "3+", factory=list, tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(BOOL, "3+", default=False, tag=3, ignorable=True)
