"""Loads relocatable ELF objects into memory and makes their functions callable, without a linker.

Pages are written while they are writable and not executable, then protected (`common/elf/linking.py`).
"""

from __future__ import annotations

import ctypes
import functools
import platform
import weakref
from collections.abc import Mapping, Sequence

from motet.errors import ArtifactError
from motet.runtime.drivers.common import pages
from motet.runtime.drivers.common.elf import objects as elf
from motet.runtime.drivers.common.elf.linking import Linker, LoadedImage, object_name

_LIBRARIES = (None, "libm.so.6", "libgcc_s.so.1")


class NativeCode:
    """Loaded objects. Their memory is unmapped with the last reference to this object; holders of addresses must hold
    it, too."""

    def __init__(self, base: int, image: LoadedImage) -> None:
        self._base = base
        self._symbols = image.symbols
        self.bytes = image.size
        self._finalizer = weakref.finalize(self, pages.unmap_pages, base, image.size)
        # Threads may still run this code while the interpreter exits; the end of the process frees it.
        self._finalizer.atexit = False

    def __contains__(self, name: str) -> bool:
        return name in self._symbols

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._symbols)

    def address(self, name: str) -> int:
        """The address of the global symbol `name`. Raises: ArtifactError if there is none."""
        if name not in self._symbols:
            known = ", ".join(self._symbols) or "none"
            raise ArtifactError(f"object code: no symbol '{name}'; it defines {known}")
        return self._base + self._symbols[name]


def load_objects(
    objects: Sequence[bytes | memoryview], symbols: Mapping[str, int], names: Sequence[str] = ()
) -> NativeCode:
    """Load objects for this machine together; they share global symbols.

    Imports are resolved in `symbols`, then in the C and mathematics libraries. `names` are the objects' names for
    errors.

    Raises: ArtifactError for a malformed object, one for another machine, a symbol with two definitions or none, or an
    unsupported relocation. motet.errors.OutOfMemoryError.
    """
    parsed = [elf.read_object(data, object_name(names, i)) for i, data in enumerate(objects)]
    linker = Linker(parsed, names, host_machine())
    size = linker.size
    base = pages.map_pages(size)
    try:
        image = linker.link(pages.view(base, size), base, lambda name: _find(name, symbols))
        # On AArch64 and RISC-V, granting execution for the first time makes Linux write back the data cache and
        # invalidate the instruction cache for these pages.
        for offset, length, protection in image.regions:
            pages.protect(base + offset, length, protection)
    except BaseException:
        pages.unmap_pages(base, size)
        raise
    return NativeCode(base, image)


def host_machine() -> str:
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    found: list[ctypes.CDLL] = []
    for name in _LIBRARIES:
        try:
            found.append(ctypes.CDLL(name))
        except OSError:
            continue
    return tuple(found)


def _find(name: str, symbols: Mapping[str, int]) -> int | None:
    if name in symbols:
        return symbols[name]
    for library in _libraries():
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value
        except AttributeError:
            continue
    return None
