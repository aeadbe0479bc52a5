"""Finds what other distributions add to Motet: entry points of the groups `motet.drivers`, `motet.targets` and
`motet.codegen`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from types import MappingProxyType


def plug_ins(group: str) -> Mapping[str, metadata.EntryPoint]:
    """The entry points of `group` by name. A compilation asks many times, and an answer takes milliseconds, which grow
    with the installed distributions: they are read again only after a folder of `sys.path` has changed."""
    return _read(group, search_path())


def search_path() -> tuple[tuple[str, int], ...]:
    """The folders of `sys.path`, each with when it last changed: what is installed is the same while this is."""
    return tuple((folder, _changed(folder)) for folder in sys.path)


@functools.lru_cache(maxsize=16)
def _read(group: str, folders: tuple[tuple[str, int], ...]) -> Mapping[str, metadata.EntryPoint]:
    return MappingProxyType({entry.name: entry for entry in metadata.entry_points(group=group)})


def _changed(folder: str) -> int:
    """When the folder last changed, in nanoseconds; 0 for what is no folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - a Path takes longer to make than to ask
    except OSError:
        return 0
