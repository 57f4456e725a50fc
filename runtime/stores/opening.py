"""Opens the object store that a URL names. The library of S3 is loaded only for a URL that needs it."""

from __future__ import annotations

from barnabas.runtime.object_store import ObjectStore
from barnabas.runtime.stores.directory import DirectoryStore
from barnabas.runtime.world import RunBlocking
from barnabas.settings.errors import SettingsError
from barnabas.settings.object_store import STORE_URL, StoreSettings


def open_store(settings: StoreSettings, run_blocking: RunBlocking) -> ObjectStore:
    """See `World.object_store`. `run_blocking` has threads for this store alone."""
    if settings.is_directory:
        return DirectoryStore(settings, run_blocking)
    try:
        from barnabas.runtime.stores.s3 import S3ObjectStore
    except ImportError as error:
        problem = f"needs the library {error.name}: pip install 'barnabas[s3]'"
        raise SettingsError(problem, STORE_URL, settings.url) from None
    return S3ObjectStore(settings, run_blocking)
