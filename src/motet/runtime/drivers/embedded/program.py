"""Code in an embedded device's memory, and recorded work: commands, complete except for the addresses of buffers."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motet.errors import ArtifactError, DeviceError
from motet.runtime.device import Work
from motet.runtime.drivers.common import pages
from motet.runtime.drivers.common.elf import objects as elf
from motet.runtime.drivers.common.elf.linking import Linker
from motet.runtime.drivers.common.heap import Heap, HeapBuffer
from motet.runtime.drivers.common.recording import check_work
from motet.runtime.drivers.embedded.image import AgentImage
from motet.runtime.drivers.embedded.protocol import COMMAND_TYPE, AgentOp

_ALIGNMENT = 64


class EmbeddedBuffer(HeapBuffer):
    """Memory on the device; see `motet.runtime.device.Buffer`."""

    def __init__(self, heap: Heap, size: int) -> None:
        super().__init__(heap, size)
        self.heap = heap


class EmbeddedExecutable:
    """Loaded objects whose global symbols are kernels, in memory `code`."""

    def __init__(self, code: EmbeddedBuffer, symbols: Mapping[str, int], image: AgentImage) -> None:
        self.code = code
        self.addresses = {name: code.address + offset for name, offset in symbols.items()}
        self._image = image

    @property
    def kernels(self) -> Sequence[str]:
        return tuple(self.addresses)

    def symbol_at(self, address: int) -> str:
        """The function that contains an address, as name+offset; empty if there is none."""
        inside = self.code.address <= address < self.code.address + self.code.bytes
        places = sorted(
            (place & ~1 if self._image.machine == "thumb" else place, name)
            for name, place in (self.addresses if inside else self._image.library).items()
        )
        index = bisect.bisect_right(places, (address, "\U0010ffff")) - 1
        if index < 0 or not (inside or address < self._image.symbols["motet_image_end"]):
            return ""
        return f"{places[index][1]}+{address - places[index][0]:#x}"


def link_code(
    heap: Heap, image: AgentImage, objects: Sequence[bytes], names: Sequence[str], device: str
) -> tuple[EmbeddedExecutable, bytes]:
    """Objects linked at a place in the heap, and the bytes to write there. Raises DeviceError if they cannot be loaded,
    OutOfMemoryError."""
    try:
        parsed = [elf.read_object(data, name) for data, name in zip(objects, names, strict=True)]
        linker = Linker(parsed, names, image.machine)
        code = EmbeddedBuffer(heap, linker.size)
        content = bytearray(code.bytes)
        linked = linker.link(memoryview(content), code.address, image.library.get)
    except ArtifactError as error:
        raise DeviceError(f"device {device}: {error}") from error
    if any(protection & pages.WRITE for _, _, protection in linked.regions):
        raise DeviceError(f"device {device}: {', '.join(names)}: code with global variables; expected constants only")
    return EmbeddedExecutable(code, linked.symbols, image), bytes(content)


class EmbeddedWork:
    """Recorded commands; `needed` is how many bytes each external must have. `scratch` is the kernels' memory; commands
    run one after another, in the order of `work`."""

    def __init__(
        self, device: str, executable: EmbeddedExecutable, work: Sequence[Work], externals: int,
        scratch: EmbeddedBuffer, heap: Heap, pointer_bytes: int,
    ) -> None:
        self.executable = executable
        self.needed = check_work(device, work, executable.addresses, externals)
        self.externals = externals
        self.work = list(work)
        self.scratch = scratch
        self._pointer = np.dtype(np.uint64 if pointer_bytes == 8 else np.uint32)
        references = sum(len(item.references) for item in work)
        self._sizes = np.array([size for item in work for size in item.sizes], np.int64)
        self._sizes_at = len(work) * COMMAND_TYPE.itemsize
        self._table_at = self._sizes_at + self._sizes.nbytes
        self.place = EmbeddedBuffer(heap, self._table_at + references * self._pointer.itemsize)

    def content(self, externals: Sequence[int]) -> bytes:
        """The commands, sizes and addresses of buffers as they are in memory, for externals at these addresses."""
        commands = np.zeros(len(self.work), COMMAND_TYPE)
        size_at, table_at = self.place.address + self._sizes_at, self.place.address + self._table_at
        table: list[int] = []
        for command, item in zip(commands, self.work, strict=True):
            launch = item.op == "launch"
            command["op"] = AgentOp.LAUNCH if launch else AgentOp.COPY
            command["entry"] = self.executable.addresses[item.kernel] if launch else 0
            command["tasks"] = item.tasks if launch else 0
            command["bytes"] = 0 if launch else item.references[0].bytes
            command["buffers"], command["sizes"], command["scratch"] = table_at, size_at, self.scratch.address
            table += [externals[reference.external] + reference.offset for reference in item.references]
            size_at += 8 * len(item.sizes)
            table_at += self._pointer.itemsize * len(item.references)
        return commands.tobytes() + self._sizes.tobytes() + np.array(table, self._pointer).tobytes()


def one_command(
    op: AgentOp, place: int, pointer_bytes: int, addresses: Sequence[int], size: int, value: int = 0
) -> bytes:
    """A copy (source, target) or a fill (target) as memory at `place`."""
    command = np.zeros(1, COMMAND_TYPE)
    command["op"], command["bytes"], command["tasks"] = op, size, value
    command["buffers"] = place + COMMAND_TYPE.itemsize
    table: np.ndarray[Any, Any] = np.array(addresses, np.uint64 if pointer_bytes == 8 else np.uint32)
    return command.tobytes() + table.tobytes()
