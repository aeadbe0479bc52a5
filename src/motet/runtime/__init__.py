"""Loads artifacts and runs them; needs nothing of the compiler.

Importing this imports numpy, but no driver: devices are looked for when asked for, by `motet.devices()`.
"""

from motet.runtime.device import DeviceInfo
from motet.runtime.function import Function
from motet.runtime.session import Session, load

__all__ = ["DeviceInfo", "Function", "Session", "load"]
