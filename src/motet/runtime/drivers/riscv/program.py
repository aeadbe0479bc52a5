"""Code on a device, and work recorded for it: commands, complete except for the addresses of their buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.errors import DeviceError
from motet.runtime.device import Work
from motet.runtime.drivers.common.elf.linking import Linker
from motet.runtime.drivers.common.elf.objects import SHF_EXECINSTR
from motet.runtime.drivers.common.heap import Heap, HeapBuffer
from motet.runtime.drivers.common.linked_code import DeviceLibrary, LinkedCode, link_code
from motet.runtime.drivers.common.recording import check_work
from motet.runtime.drivers.riscv.errata import STUB, divert, find_conversions
from motet.runtime.drivers.riscv.installing import library_symbols, open_protection_address
from motet.runtime.drivers.riscv.memory import RiscvBuffer, RiscvMemory
from motet.runtime.drivers.riscv.ordering import order_by_ranks
from motet.runtime.drivers.riscv.protection import guarded
from motet.runtime.drivers.riscv.protocol import (
    COMMAND_TYPE,
    COPY_CHUNK,
    DRAM,
    PIECE_TYPE,
    PROTECTION_TYPE,
    TRAMPOLINE,
    Op,
)

MACHINE = "riscv64"
_CLAIMS = 4  # parts of a launch per core, if it has so many tasks

_Words = np.ndarray[Any, np.dtype[np.uint64]]


def load_riscv(
    memory: RiscvMemory, objects: Sequence[bytes], names: Sequence[str], place: Callable[[HeapBuffer, bytes], None],
    errata: bool = False,
) -> LinkedCode:
    """Objects for these cores, linked at their address; `place` copies them there. `errata` patches the code for old
    emulators (`errata.py`). Raises DeviceError if they cannot be loaded, and OutOfMemoryError."""
    diverted: list[int] = []

    def allocate(linker: Linker) -> RiscvBuffer:
        diverted.extend(_conversions(linker) if errata else ())
        return RiscvBuffer(memory, memory.code, linker.size + len(diverted) * STUB)

    library = DeviceLibrary(library_symbols(), DRAM + TRAMPOLINE + 1, memory.code.begin)
    executable, content = link_code(objects, names, MACHINE, memory.device, library, allocate)
    divert(memoryview(content), diverted, len(content) - len(diverted) * STUB, memory.device)
    place(executable.code, bytes(content))
    return executable


def _conversions(linker: Linker) -> list[int]:
    """The offsets in the linked image of the instructions that must be patched."""
    return [
        linker.offsets[index, number] + place
        for index, item in enumerate(linker.objects)
        for number, section in item.sections.items()
        if section.flags & SHF_EXECINSTR
        for place in find_conversions(section.data)
    ]


@dataclass(frozen=True)
class Cores:
    """How many cores work, and their private memory, `stride` bytes apart."""

    count: int
    private: RiscvBuffer
    stride: int


class RiscvCommandBuffer:
    """Commands and what they wait for; `needed` is how many bytes each external must have. Submissions that run at the
    same time each have an instance.

    `work` is in the device's order; `places` maps the caller's commands to it."""

    def __init__(
        self, memory: RiscvMemory, executable: LinkedCode, work: Sequence[Work], externals: int, cores: Cores,
        guard: bool,
    ) -> None:
        self.executable = executable
        self.needed = check_work(memory.device, work, executable.addresses, externals)
        _check_copies(memory.device, work)
        self.externals = externals
        self.cores = cores
        self._memory = memory
        self._guard = guard
        divided = [_divide(item, cores.count) for item in work]
        order = order_by_ranks(work, [parts for _, _, parts in divided], cores.count)
        self.places = [0] * len(work)
        for place, number in enumerate(order):
            self.places[number] = place
        self.work = [work[number] for number in order]
        self._lay_out([divided[number] for number in order])
        self._idle: list[BatchInstance] = []
        self._lock = threading.Lock()

    def _lay_out(self, divided: Sequence[tuple[int, int, int]]) -> None:
        """The initial contents of every instance: commands, protections, sizes, addresses of buffers, readers, and the
        ready words; their offsets are relative to the instance's start."""
        work, count = self.work, len(self.work)
        references = [reference for item in work for reference in item.references]
        sizes = [size for item in work for size in item.sizes]
        readers = self._readers()
        self.sizes_at = count * (COMMAND_TYPE.itemsize + (PROTECTION_TYPE.itemsize if self._guard else 0))
        self.table_at = self.sizes_at + 8 * len(sizes)
        self.readers_at = self.table_at + 8 * len(references)
        self.ready_at = self.readers_at + -(-4 * sum(map(len, readers)) // 8) * 8
        self.bytes = self.ready_at + 8 * -(-count // 64)
        self._externals_of = np.array([reference.external for reference in references], np.intp)
        self._offsets = np.array([reference.offset for reference in references], np.uint64)
        self._sizes = np.array(sizes, np.int64)
        self._all_readers = np.array([reader for each in readers for reader in each], np.uint32)
        commands = self._commands = np.zeros(count, COMMAND_TYPE)
        size_at, buffer_at, reader_at = self.sizes_at, self.table_at, self.readers_at
        for index, (item, (tasks, grain, parts)) in enumerate(zip(work, divided, strict=True)):
            launch = item.op == "launch"
            command = commands[index]
            command["op"], command["entry"] = (Op.LAUNCH, self.executable.addresses[item.kernel]) if launch \
                else (Op.COPY, 0)
            command["tasks"], command["grain"], command["parts"] = tasks, grain, parts
            command["bytes"] = 0 if launch else item.references[0].bytes
            command["buffers"], command["sizes"], command["readers"] = buffer_at, size_at, reader_at
            command["reader_count"], command["needs"] = len(readers[index]), len(set(item.after))
            if self._guard:
                command["protection"] = count * COMMAND_TYPE.itemsize + index * PROTECTION_TYPE.itemsize
            size_at += 8 * len(item.sizes)
            buffer_at += 8 * len(item.references)
            reader_at += 4 * len(readers[index])

    def _readers(self) -> list[list[int]]:
        """For each command, in the device's order, the commands that depend on it."""
        readers: list[list[int]] = [[] for _ in self.work]
        for place, item in enumerate(self.work):
            for earlier in sorted(set(item.after)):
                readers[self.places[earlier]].append(place)
        return readers

    def take(self) -> BatchInstance:
        """An unused instance; call `give_back` after reading its outcome."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return BatchInstance(self, RiscvBuffer(self._memory, self._memory.control, self.bytes))

    def give_back(self, instance: BatchInstance) -> None:
        with self._lock:
            self._idle.append(instance)

    def template(self, base: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of an instance at address `base`."""
        commands = self._commands.copy()
        for name in ("buffers", "sizes", "readers"):
            commands[name] += base
        commands["protection"] = commands["protection"] + base if self._guard else open_protection_address()
        content = np.zeros(self.bytes, np.uint8)
        content[: commands.nbytes] = commands.view(np.uint8)
        content[self.sizes_at : self.table_at] = self._sizes.view(np.uint8)
        content[self.readers_at : self.readers_at + self._all_readers.nbytes] = self._all_readers.view(np.uint8)
        return content

    def addresses(self, externals: Sequence[int]) -> _Words:
        """The address of every reference, given the externals' addresses."""
        return np.array(externals, np.uint64)[self._externals_of] + self._offsets

    def protections(self, externals: Sequence[int]) -> np.ndarray[Any, np.dtype[np.void]]:
        """For every command, the guard around the memory that it refers to."""
        result = np.zeros(len(self.work), PROTECTION_TYPE)
        for index, item in enumerate(self.work):
            places = [(externals[r.external] + r.offset, r.bytes) for r in item.references]
            result[index] = guarded(self._memory, [(begin, begin + size) for begin, size in places])[0]
        return result

    @property
    def control(self) -> Heap:
        """The heap for data of commands that the device reads and writes."""
        return self._memory.control

    @property
    def guard(self) -> bool:
        return self._guard


class BatchInstance:
    """A command buffer's commands in the device's memory."""

    def __init__(self, owner: RiscvCommandBuffer, memory: RiscvBuffer) -> None:
        self.memory = memory
        content = self._content = memory.array
        content[:] = owner.template(memory.address)
        commands = len(owner.work) * COMMAND_TYPE.itemsize
        self.commands = content[:commands].view(COMMAND_TYPE)
        self.ready = memory.address + owner.ready_at
        self._protections = content[commands : owner.sizes_at].view(PROTECTION_TYPE)
        self._table = content[owner.table_at : owner.readers_at].view(np.uint64)
        self._notes: RiscvBuffer | None = None

    def prepare(self, owner: RiscvCommandBuffer, externals: Sequence[int], noted: bool = False) -> None:
        """Prepare for a run on externals at these addresses; with `noted`, cores record what they run when."""
        self._table[:] = owner.addresses(externals)
        self.commands["instructions"] = 0
        self.commands["pieces"] = self._note(owner) if noted else 0
        if owner.guard:
            self._protections[:] = owner.protections(externals)
        self.memory.memory.send(self._content)

    def fetch(self) -> None:
        """Update what the device has noted of the run."""
        self.memory.memory.fetch(self._content)
        if self._notes is not None:
            self.memory.memory.fetch(self._notes.array)

    def pieces(self) -> list[list[tuple[int, int, int]]]:
        """For each command, the parts that cores ran, as core, begin and end by the device's clock. Consecutive parts
        of one core are merged, unless it ran another command between them."""
        if self._notes is None:
            return [[] for _ in self.commands]
        notes = self._notes.array.view(PIECE_TYPE)
        of = np.repeat(np.arange(len(self.commands)), self.commands["parts"].astype(np.intp))
        found: list[list[tuple[int, int, int]]] = [[] for _ in self.commands]
        latest: dict[int, int] = {}  # the last command of each core
        for index in np.argsort(notes["begin"], kind="stable"):
            hart, begin, end = (int(notes[name][index]) for name in ("hart", "begin", "end"))
            if not end:  # it did not run
                continue
            command = int(of[index])
            own = found[command]
            same = next((at for at in range(len(own) - 1, -1, -1) if own[at][0] == hart), -1)
            if latest.get(hart) == command and same >= 0:
                own[same] = hart, own[same][1], end
            else:
                own.append((hart, begin, end))
            latest[hart] = command
        return found

    def _note(self, owner: RiscvCommandBuffer) -> _Words:
        """The location of each command's records, all of them empty."""
        parts = self.commands["parts"].astype(np.uint64)
        if self._notes is None:
            self._notes = RiscvBuffer(self.memory.memory, owner.control, int(parts.sum()) * PIECE_TYPE.itemsize)
        self._notes.array[:] = 0
        self.memory.memory.send(self._notes.array)
        return self._notes.address + PIECE_TYPE.itemsize * (np.cumsum(parts) - parts)


def _check_copies(device: str, work: Sequence[Work]) -> None:
    """Refuse copies that overwrite what they still have to read: chunks are copied forwards, by any core."""
    for index, item in enumerate(work):
        if item.op != "copy":
            continue
        source, target = item.references
        distance = target.offset - source.offset
        overlaps = source.external == target.external and 0 < abs(distance) < source.bytes
        if overlaps and (distance > 0 or source.bytes > COPY_CHUNK):
            raise DeviceError(f"device {device}: command {index}: copy of {source.bytes:,} bytes at {source.offset:,} "
                              f"to {target.offset:,} of the same buffer; expected ranges that do not overlap")


def _divide(item: Work, harts: int) -> tuple[int, int, int]:
    """A command's tasks, the tasks in one part, and the number of parts."""
    if item.op == "copy":
        tasks, grain = -(-item.references[0].bytes // COPY_CHUNK), 1
    else:
        tasks = item.tasks
        grain = max(1, tasks // (harts * _CLAIMS) if harts > 1 else tasks)
    return tasks, grain, max(1, -(-tasks // grain))
