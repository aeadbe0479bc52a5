"""Objects in a device's own memory, whose addresses the host manages: linked for their place, and written there."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from motet.errors import ArtifactError, DeviceError
from motet.runtime.drivers.common import pages
from motet.runtime.drivers.common.elf.linking import Linker, object_name
from motet.runtime.drivers.common.elf.objects import read_object
from motet.runtime.drivers.common.heap import HeapBuffer


@dataclass(frozen=True)
class DeviceLibrary:
    """The addresses of the functions that kernels may call, all of them from `begin` to before `end`."""

    symbols: Mapping[str, int]
    begin: int
    end: int


class LinkedCode:
    """Loaded objects whose global symbols are kernels, in memory `code`."""

    def __init__(self, code: HeapBuffer, symbols: Mapping[str, int], library: DeviceLibrary) -> None:
        self.code = code
        self.addresses = {name: code.address + offset for name, offset in symbols.items()}
        self._library = library

    @property
    def kernels(self) -> Sequence[str]:
        return tuple(self.addresses)

    def symbol_at(self, address: int) -> str:
        """The function that contains an address, as name+offset; empty if there is none."""
        own = DeviceLibrary(self.addresses, self.code.address, self.code.address + self.code.bytes)
        found = next((each for each in (own, self._library) if each.begin <= address < each.end), None)
        if found is None:
            return ""
        # Addresses of Thumb functions are odd, their instructions' are not.
        places = sorted((place & ~1, name) for name, place in found.symbols.items())
        index = bisect.bisect_right(places, (address, "\U0010ffff")) - 1
        return f"{places[index][1]}+{address - places[index][0]:#x}" if index >= 0 else ""


def link_code(
    objects: Sequence[bytes], names: Sequence[str], machine: str, device: str, library: DeviceLibrary,
    allocate: Callable[[Linker], HeapBuffer],
) -> tuple[LinkedCode, bytearray]:
    """Objects linked in memory that `allocate` returns, and the bytes to write there; what it has beyond the linker's
    size is zero. Raises DeviceError if they cannot be loaded."""
    try:
        parsed = [read_object(data, object_name(names, number)) for number, data in enumerate(objects)]
        linker = Linker(parsed, names, machine)
        code = allocate(linker)
        content = bytearray(code.bytes)
        image = linker.link(memoryview(content)[: linker.size], code.address, library.symbols.get)
    except ArtifactError as error:
        raise DeviceError(f"device {device}: {error}") from error
    if any(protection & pages.WRITE for _, _, protection in image.regions):
        listed = ", ".join(linker.where)
        raise DeviceError(f"device {device}: {listed}: code with global variables; expected constants only")
    return LinkedCode(code, image.symbols, library), content
