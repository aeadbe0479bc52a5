"""Code in an embedded device's memory, and recorded work: commands, complete except for the addresses of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.runtime.device import Work
from motet.runtime.drivers.common.heap import Heap, HeapBuffer
from motet.runtime.drivers.common.linked_code import DeviceLibrary, LinkedCode, link_code
from motet.runtime.drivers.common.recording import check_work
from motet.runtime.drivers.embedded.image import AgentImage
from motet.runtime.drivers.embedded.protocol import COMMAND_TYPE, AgentOp

_ALIGNMENT = 64


class EmbeddedBuffer(HeapBuffer):
    """Memory on the device; see `motet.runtime.device.Buffer`."""


def link_objects(
    heap: Heap, image: AgentImage, objects: Sequence[bytes], names: Sequence[str], device: str
) -> tuple[LinkedCode, bytes]:
    """Objects linked at a place in the heap, and the bytes to write there. Raises DeviceError if they cannot be loaded,
    OutOfMemoryError."""
    library = DeviceLibrary(image.library, 0, image.symbols["motet_image_end"])
    executable, content = link_code(
        objects, names, image.machine, device, library, lambda linker: EmbeddedBuffer(heap, linker.size)
    )
    return executable, bytes(content)


class EmbeddedWork:
    """Recorded commands; `needed` is how many bytes each external must have. `scratch` is the kernels' memory; commands
    run one after another, in the order of `work`."""

    def __init__(
        self, device: str, executable: LinkedCode, work: Sequence[Work], externals: int,
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
