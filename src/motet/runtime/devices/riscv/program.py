"""Code on a device, and work recorded for it: waves of commands, ready but for the addresses of their buffers."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motet.errors import ArtifactError, DeviceError
from motet.runtime.device import Work
from motet.runtime.devices.host import elf, pages
from motet.runtime.devices.host.loader import Linker
from motet.runtime.devices.riscv.errata import STUB, divert, find_conversions
from motet.runtime.devices.riscv.installing import library_symbols, open_protection_address
from motet.runtime.devices.riscv.memory import Memory, RiscvBuffer
from motet.runtime.devices.riscv.protection import guarded
from motet.runtime.devices.riscv.protocol import (
    COMMAND_TYPE,
    COPY_CHUNK,
    DRAM,
    PIECE_TYPE,
    PROTECTION_TYPE,
    TRAMPOLINE,
    Op,
)
from motet.runtime.recording import check_work

MACHINE = "riscv64"
_CLAIMS = 4  # how often each core takes tasks of a launch, if they are as many

_Words = np.ndarray[Any, np.dtype[np.uint64]]


class RiscvExecutable:
    """Loaded objects, whose global symbols are kernels. `code` is where they lie."""

    def __init__(self, code: RiscvBuffer, symbols: dict[str, int]) -> None:
        self.code = code
        self.addresses = {name: code.address + offset for name, offset in symbols.items()}

    @property
    def kernels(self) -> Sequence[str]:
        return tuple(self.addresses)

    def symbol_at(self, address: int) -> str:
        """The function that an address is in, as name+offset; empty if it is in none."""
        if self.code.address <= address < self.code.address + self.code.bytes:
            return _nearest(self.addresses, address)
        if DRAM + TRAMPOLINE < address < self.code.memory.code.begin:
            return _nearest(library_symbols(), address)
        return ""


def _nearest(symbols: Any, address: int) -> str:
    places = sorted((place, name) for name, place in symbols.items())
    index = bisect.bisect_right(places, (address, "\U0010ffff")) - 1
    return f"{places[index][1]}+{address - places[index][0]:#x}" if index >= 0 else ""


def load_riscv(
    memory: Memory, objects: Sequence[bytes], names: Sequence[str], place: Callable[[RiscvBuffer, bytes], None],
    errata: bool = False,
) -> RiscvExecutable:
    """Objects for these cores, linked where they will lie; `place` takes them there. `errata` keeps the code from
    what old emulators cannot do (`errata.py`). Raises DeviceError for what cannot be loaded, and OutOfMemoryError."""
    where = f"device {memory.device}"
    try:
        parsed = [elf.read_object(data, name) for data, name in zip(objects, names, strict=True)]
        linker = Linker(parsed, names, MACHINE)
        diverted = _conversions(parsed, linker) if errata else []
        code = RiscvBuffer(memory, memory.code, linker.size + len(diverted) * STUB)
        content = bytearray(code.bytes)
        image = linker.link(memoryview(content)[: linker.size], code.address, library_symbols().get)
    except ArtifactError as error:
        raise DeviceError(f"{where}: {error}") from error
    if any(protection & pages.WRITE for _, _, protection in image.regions):
        raise DeviceError(f"{where}: {', '.join(names)}: code with variables of its own; expected constants alone")
    divert(memoryview(content), diverted, linker.size, memory.device)
    place(code, bytes(content))
    return RiscvExecutable(code, image.symbols)


def _conversions(objects: Sequence[elf.Object], linker: Linker) -> list[int]:
    """Where in the linked image the instructions lie that must be diverted."""
    return [
        linker.offsets[index, number] + place
        for index, item in enumerate(objects)
        for number, section in item.sections.items()
        if section.flags & elf.SHF_EXECINSTR
        for place in find_conversions(section.data)
    ]


class RiscvCommandBuffer:
    """Waves of commands; `needed` is how many bytes each external must have. `private` is memory for every core,
    `stride` bytes apart. Submissions that run at the same time each have an instance."""

    def __init__(
        self, memory: Memory, executable: RiscvExecutable, work: Sequence[Work], externals: int, harts: int,
        private: RiscvBuffer, stride: int, guard: bool,
    ) -> None:
        self.executable = executable
        self.needed = check_work(memory.device, work, executable.addresses, externals)
        self.externals = externals
        self.private = private
        self.stride = stride
        self._memory = memory
        self._guard = guard
        levels = _levels(work)
        order = sorted(range(len(work)), key=lambda index: levels[index])
        self.waves = len(set(levels))
        self.work = [work[index] for index in order]  # in the order in which the device has them
        lasts = [k + 1 == len(order) or levels[order[k + 1]] != levels[index] for k, index in enumerate(order)]
        self._lay_out(lasts, harts)
        self._idle: list[Instance] = []
        self._lock = threading.Lock()

    def _lay_out(self, lasts: Sequence[bool], harts: int) -> None:
        """What every instance begins as: commands, protections, sizes, and the addresses of buffers; the places of
        these are from the instance's beginning on."""
        work, count = self.work, len(self.work)
        references = [reference for item in work for reference in item.references]
        sizes = [size for item in work for size in item.sizes]
        self.sizes_at = count * (COMMAND_TYPE.itemsize + (PROTECTION_TYPE.itemsize if self._guard else 0))
        self.table_at = self.sizes_at + 8 * len(sizes)
        self.pieces_at = self.table_at + 8 * len(references)
        self.harts = harts
        self.bytes = self.pieces_at + count * harts * PIECE_TYPE.itemsize
        self._externals_of = np.array([reference.external for reference in references], np.intp)
        self._offsets = np.array([reference.offset for reference in references], np.uint64)
        self._sizes = np.array(sizes, np.int64)
        commands = self._commands = np.zeros(count, COMMAND_TYPE)
        size_at, buffer_at = self.sizes_at, self.table_at
        for index, item in enumerate(work):
            launch = item.op == "launch"
            length = 0 if launch else item.references[0].bytes
            tasks = item.tasks if launch else -(-length // COPY_CHUNK)
            grain = max(1, tasks // (harts * _CLAIMS)) if launch and harts > 1 else max(1, tasks) if launch else 1
            guard_at = count * COMMAND_TYPE.itemsize + index * PROTECTION_TYPE.itemsize if self._guard else 0
            commands[index] = (
                Op.LAUNCH if launch else Op.COPY, lasts[index], self.executable.addresses[item.kernel] if launch else 0,
                buffer_at, size_at, tasks, grain, length, guard_at, 0, 0, 0, 0, 0, 0,
            )
            size_at += 8 * len(item.sizes)
            buffer_at += 8 * len(item.references)

    def take(self) -> Instance:
        """An instance that nobody runs; `give_back` when its outcome was read."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Instance(self, RiscvBuffer(self._memory, self._memory.control, self.bytes))

    def give_back(self, instance: Instance) -> None:
        with self._lock:
            self._idle.append(instance)

    def template(self, base: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of an instance that lies at `base`."""
        commands = self._commands.copy()
        for name in ("buffers", "sizes"):
            commands[name] += base
        commands["protection"] = commands["protection"] + base if self._guard else open_protection_address()
        content = np.zeros(self.bytes, np.uint8)
        content[: commands.nbytes] = commands.view(np.uint8)
        content[self.sizes_at : self.table_at] = self._sizes.view(np.uint8)
        return content

    def addresses(self, externals: Sequence[int]) -> _Words:
        """Where every reference is, with the externals at these addresses."""
        return np.array(externals, np.uint64)[self._externals_of] + self._offsets

    def protections(self, externals: Sequence[int]) -> np.ndarray[Any, np.dtype[np.void]]:
        """For every command, the guard around what it refers to."""
        result = np.zeros(len(self.work), PROTECTION_TYPE)
        for index, item in enumerate(self.work):
            places = [(externals[r.external] + r.offset, r.bytes) for r in item.references]
            result[index] = guarded(self._memory, [(begin, begin + size) for begin, size in places])[0]
        return result

    @property
    def guard(self) -> bool:
        return self._guard


class Instance:
    """A command buffer's commands in the device's memory."""

    def __init__(self, owner: RiscvCommandBuffer, memory: RiscvBuffer) -> None:
        self.memory = memory
        content = memory.array
        content[:] = owner.template(memory.address)
        commands = len(owner.work) * COMMAND_TYPE.itemsize
        self.commands = content[:commands].view(COMMAND_TYPE)
        self._protections = content[commands : owner.sizes_at].view(PROTECTION_TYPE)
        self._table = content[owner.table_at : owner.pieces_at].view(np.uint64)
        self.pieces = content[owner.pieces_at : owner.bytes].view(PIECE_TYPE).reshape(-1, owner.harts)

    def prepare(self, owner: RiscvCommandBuffer, externals: Sequence[int], noted: bool = False) -> None:
        """Ready to run on externals at these addresses; `noted` says that each core is to note what it does when."""
        self._table[:] = owner.addresses(externals)
        self.commands["instructions"] = 0
        if noted:
            self.pieces[...] = 0
            first = self.memory.address + owner.pieces_at
            stride = owner.harts * PIECE_TYPE.itemsize
            self.commands["pieces"] = first + stride * np.arange(len(owner.work), dtype=np.uint64)
        else:
            self.commands["pieces"] = 0
        if owner.guard:
            self._protections[:] = owner.protections(externals)


def _levels(work: Sequence[Work]) -> list[int]:
    """For each command, how many must have ended one after the other before it."""
    levels: list[int] = []
    for item in work:
        levels.append(1 + max((levels[index] for index in item.after), default=-1))
    return levels
