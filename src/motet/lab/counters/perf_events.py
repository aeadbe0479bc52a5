"""Counts of the processor (instructions, cycles, cache misses, branches) by Linux's perf_event_open.

Source: perf_event_open(2). The counters include threads started after they are opened.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Sequence

_HARDWARE = {
    "cycles": 0, "instructions": 1, "cache-references": 2, "cache-misses": 3, "branches": 4, "branch-misses": 5,
}
_CALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403
_SIZE = 112

NAMES = tuple(_HARDWARE)


class PerfEvents:
    """The counters `names`, opened for this process. `reasons` says why some could not be opened."""

    def __init__(self, names: Sequence[str]) -> None:
        self._files: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        for name in names:
            try:
                self._files[name] = _open(_HARDWARE[name])
            except OSError as error:
                self.reasons[name] = f"not available: perf_event_open: {(error.strerror or str(error)).lower()}"

    def start(self) -> None:
        for file in self._files.values():
            _control(file, _RESET)
            _control(file, _ENABLE)

    def stop(self) -> dict[str, int]:
        """The counts since `start`."""
        for file in self._files.values():
            _control(file, _DISABLE)
        return {name: struct.unpack("q", os.read(file, 8))[0] for name, file in self._files.items()}

    def close(self) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):
                os.close(file)


def _open(event: int) -> int:
    number = _CALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"unknown on {platform.machine()}")
    flags = _DISABLED | _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    attributes = struct.pack("IIQQQQQ", 0, _SIZE, event, 0, 0, 0, flags).ljust(_SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(number, ctypes.create_string_buffer(attributes, _SIZE), 0, -1, -1, 0)
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return file


def _control(file: int, request: int) -> None:
    import fcntl

    fcntl.ioctl(file, request, 0)
