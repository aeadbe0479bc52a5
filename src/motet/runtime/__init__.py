"""Loads artifacts and runs them, without the compiler.

Modules are imported lazily: the compiler uses small parts of this package without the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.on_use import imported_on_use

if TYPE_CHECKING:
    from motet.runtime.device import DeviceInfo
    from motet.runtime.device_array import DeviceArray
    from motet.runtime.function import Function
    from motet.runtime.pointer import Pointer
    from motet.runtime.session import Session, load

__all__ = ["DeviceArray", "DeviceInfo", "Function", "Pointer", "Session", "load"]

if not TYPE_CHECKING:
    __getattr__ = imported_on_use("motet.runtime", {
        "DeviceArray": "motet.runtime.device_array:DeviceArray", "DeviceInfo": "motet.runtime.device:DeviceInfo",
        "Function": "motet.runtime.function:Function", "Pointer": "motet.runtime.pointer:Pointer",
        "Session": "motet.runtime.session:Session", "load": "motet.runtime.session:load",
    })  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
