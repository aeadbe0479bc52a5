"""Programs and recorded commands.

A program is SPIR-V or OpenCL C. The name of each kernel ends in the numbers of its buffers and sizes, which determine
its parameters:

    kernel void NAME__2b1s(global uchar *b0, global uchar *b1, long s0, long tasks, global uchar *scratch, long stride)

Programs with a launch record are tile programs, with other parameters and work-groups (`tiles.py`). In all others a
work-item is a work-group. Of n work-items, work-item i runs the tasks [i * tasks / n, (i + 1) * tasks / n), and
`scratch + i * stride` is its own memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.launch import Launch
from motet.errors import DeviceError, DeviceLost
from motet.runtime.device import Work
from motet.runtime.drivers.common.recording import check_work
from motet.runtime.drivers.opencl.api import Handle, OpenClApi, PlatformDied
from motet.runtime.drivers.opencl.context import Context, Memory, MemoryPart, Owned
from motet.runtime.drivers.opencl.stand_ins import StandIns
from motet.runtime.drivers.opencl.tiles import build_tile, check_alignment, set_fixed_arguments, split_tiles

_ENTRY = re.compile(r"(.+)__(\d+)b(\d+)s")
_ALIGNMENT = 64
_ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"


@dataclass(frozen=True)
class Entry:
    """A kernel of a program."""

    program: Owned
    name: str
    buffers: int
    sizes: int
    tile: Launch | None = None  # of a tile program


class OpenClExecutable:
    """Built programs with their kernels by symbol."""

    def __init__(self, context: Context, entries: Mapping[str, Entry]) -> None:
        self.context = context
        self.entries = entries

    @property
    def kernels(self) -> Sequence[str]:
        return list(self.entries)


def load_programs(
    context: Context, objects: Sequence[bytes], names: Sequence[str], rounded: bool
) -> OpenClExecutable:
    """Build `objects`; with `rounded`, division and square roots of f32 are rounded correctly. Raises DeviceError with
    the first error of the platform's compiler, DeviceLost if that dies."""
    entries: dict[str, Entry] = {}
    tiles, others = split_tiles(context.name, objects, names)
    for tile in tiles:
        launch = tile.launch
        try:
            program = build_tile(context, tile)
        except PlatformDied as error:
            raise DeviceLost(context.name, f"{tile.path}: {error}") from error
        except DeviceError as error:
            raise DeviceError(f"device {context.name}: {tile.path}: {error}") from error
        entries[launch.kernel] = Entry(program, launch.entry, launch.buffers, len(launch.sizes), launch)
    for name, code in others:
        try:
            program = context.program(code, _ROUNDED if rounded else "")
            kernels = context.api.kernel_names(program.handle)
        except PlatformDied as error:
            raise DeviceLost(context.name, f"{name}: {error}") from error
        except DeviceError as error:
            raise DeviceError(f"device {context.name}: {name}: {error}") from error
        for kernel in kernels:
            if match := _ENTRY.fullmatch(kernel):
                entries[match[1]] = Entry(program, kernel, int(match[2]), int(match[3]))
    return OpenClExecutable(context, entries)


@dataclass
class _Launch:
    """A kernel object whose sizes are set."""

    kernel: Owned
    buffers: int
    sizes: int
    items: int
    tile: Launch | None = None


class OpenClCommands:
    """Recorded commands; `needed` is the required bytes of each external, `scratch` those of one submission."""

    def __init__(self, executable: OpenClExecutable, work: Sequence[Work], needed: tuple[int, ...]) -> None:
        self.executable = executable  # keeps the programs
        self.work = tuple(work)
        self.needed = needed
        self.externals = len(needed)
        self.scratch = 0
        self.stride = 0
        self._launches: dict[int, _Launch] = {}
        waited = {other for item in work for other in item.after}
        self._last = [index for index in range(len(work)) if index not in waited]
        self._lock = threading.Lock()  # a kernel object's parameters belong to one submission until it is enqueued

    def prepare(self, scratch: int, most_items: int) -> None:
        """Create the kernel objects. With scratch memory, a launch has at most `most_items` work-items."""
        api = self.executable.context.api
        self.stride = -(-scratch // _ALIGNMENT) * _ALIGNMENT
        self.scratch = self.stride * most_items
        for index, item in enumerate(self.work):
            if item.op == "launch" and item.tasks:
                entry = self.executable.entries[item.kernel]
                where = f"device {self.executable.context.name}: command {index}"
                for what, given, expected in (
                    ("buffers", len(item.references), entry.buffers), ("sizes", len(item.sizes), entry.sizes)
                ):
                    if given != expected:
                        raise DeviceError(f"{where}: {given} {what} for {item.kernel}; expected {expected}")
                kernel = self.executable.context.own("Kernel", api.kernel_create(entry.program.handle, entry.name))
                if entry.tile is not None:
                    set_fixed_arguments(api, kernel.handle, entry.tile, item.sizes)
                    self._launches[index] = _Launch(kernel, entry.buffers, entry.sizes, item.tasks, entry.tile)
                    continue
                items = min(item.tasks, most_items) if scratch else item.tasks
                self._launches[index] = _Launch(kernel, entry.buffers, entry.sizes, items)
                numbers = (*item.sizes, item.tasks)
                for number, value in enumerate(numbers, entry.buffers):
                    api.set_number(kernel.handle, number, value)
                api.set_number(kernel.handle, entry.buffers + entry.sizes + 2, self.stride)

    def run(
        self, queue: Handle, buffers: Sequence[Memory], scratch: Memory | None,
        after_each: Callable[[Work], None] | None,
    ) -> None:
        """Enqueue all commands, each after those that it names, and wait for their end. With `after_each`, the commands
        run one by one, and it is called after each."""
        api = self.executable.context.api
        own: list[Handle] = []
        try:
            self.enqueue(queue, [buffer.place for buffer in buffers], scratch, (), own, after_each)
            api.flush(queue)
        finally:
            _finish(api, own)

    def enqueue(
        self, queue: Handle, places: Sequence[MemoryPart], scratch: Memory | None, first: Sequence[Handle],
        own: list[Handle], after_each: Callable[[Work], None] | None = None,
    ) -> list[Handle]:
        """Enqueue all commands, each after those that it names or, if there are none, after the events `first`. Adds
        the commands' events to `own`, also if it raises OpenClError; returns those after which all have ended."""
        api = self.executable.context.api
        own_memory = scratch.place if scratch is not None else None
        events: list[list[Handle]] = []
        with self._lock:
            for index, item in enumerate(self.work):
                waits = [event for other in item.after for event in events[other]] if item.after else [*first]
                if self.stride and own:
                    waits.append(own[-1])  # launches share the scratch memory
                event = self._enqueue(index, queue, places, own_memory, waits)
                events.append([event] if event else waits)
                if event:
                    own.append(event)
                    if after_each is not None:
                        api.wait([event])
                        after_each(item)
        return list(dict.fromkeys(event for index in self._last for event in events[index]))

    def _enqueue(
        self, index: int, queue: Handle, places: Sequence[MemoryPart], scratch: MemoryPart | None,
        waits: Sequence[Handle],
    ) -> Handle:
        """Enqueue a command; 0 if it has nothing to do."""
        context, item = self.executable.context, self.work[index]
        parts = [places[part.external].part(part.offset, part.bytes) for part in item.references]
        if item.op == "copy":
            return context.copy(queue, parts[0], parts[1], waits)
        launch = self._launches.get(index)
        if launch is None:
            return 0
        if not all(map(context.takes, parts)):
            with StandIns(context, queue, parts, waits) as stand_ins:
                stand_ins.end(self._launch(launch, queue, stand_ins.parts, scratch, stand_ins.ready))
            return stand_ins.event
        return self._launch(launch, queue, parts, scratch, waits)

    def _launch(
        self, launch: _Launch, queue: Handle, parts: Sequence[MemoryPart], scratch: MemoryPart | None,
        waits: Sequence[Handle],
    ) -> Handle:
        if launch.tile is not None:
            return self._enqueue_tile(queue, launch, launch.tile, parts, waits)
        context = self.executable.context
        # Platforms want the argument for scratch memory to be set, also if it is unused.
        unused = parts[0] if parts else context.nothing
        made: list[Handle] = []
        try:
            for number, part in enumerate((*parts, scratch or unused)):
                # Set anew for each launch: memory given back and allocated again may have the same address, and
                # Intel's platform then still writes to what was there.
                where = number if number < launch.buffers else launch.buffers + launch.sizes + 1
                made.append(context.set_argument(launch.kernel.handle, where, part))
            return context.api.launch(queue, launch.kernel.handle, launch.items, waits)
        finally:
            context.release_parts(made)

    def _enqueue_tile(
        self, queue: Handle, launch: _Launch, tile: Launch, parts: Sequence[MemoryPart], waits: Sequence[Handle]
    ) -> Handle:
        context = self.executable.context
        made: list[Handle] = []
        try:
            for number, part in enumerate(parts):
                if part.kind != "cl_mem":
                    check_alignment(context.name, tile, part.handle)
                made.append(context.set_argument(launch.kernel.handle, number, part))
            items = tile.warps * tile.sub_group
            return context.api.launch(queue, launch.kernel.handle, launch.items, waits, items)
        finally:
            context.release_parts(made)


def record_commands(
    executable: OpenClExecutable, work: Sequence[Work], externals: int, scratch: int, most_items: int
) -> OpenClCommands:
    """Raises DeviceError for invalid commands."""
    needed = check_work(executable.context.name, work, executable.kernels, externals)
    commands = OpenClCommands(executable, work, needed)
    commands.prepare(scratch, most_items)
    return commands


def _finish(api: OpenClApi, events: Sequence[Handle]) -> None:
    """Wait for `events` and give them back. Raises OpenClError if a command failed."""
    try:
        api.wait(events)
    finally:
        for event in events:
            api.release("Event", event)
