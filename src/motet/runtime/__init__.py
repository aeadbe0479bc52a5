"""Loads artifacts and runs them, without the compiler.

Modules are imported lazily: the compiler uses small parts of this package without the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.runtime.device import DeviceInfo
    from motet.runtime.device_array import DeviceArray
    from motet.runtime.function import Function
    from motet.runtime.pointer import Pointer
    from motet.runtime.session import Session, load

__all__ = ["DeviceArray", "DeviceInfo", "Function", "Pointer", "Session", "load"]

_LAZY = {
    "DeviceArray": "motet.runtime.device_array",
    "Pointer": "motet.runtime.pointer",
    "DeviceInfo": "motet.runtime.device",
    "Function": "motet.runtime.function",
    "Session": "motet.runtime.session",
    "load": "motet.runtime.session",
}


if not TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(importlib.import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'motet.runtime' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
