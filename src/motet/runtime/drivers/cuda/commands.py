"""Recorded work: kernels and copies with their dependences, as a CUDA graph, or in sequence if they are few.

The parameters of all commands are in one array, in which addresses are buffer addresses plus offsets; the kernels'
scratch memory is an additional last buffer. A graph is built once and *instantiated* a few times, each instance for the
addresses of its last submission: the same addresses again need one call, others update the nodes that they affect. One
or two commands become a graph when they run on the same addresses again. Library calls are captured into child graphs.
A kernel that waits for its dependences itself is launched while they still run (`overlaps`), if all of them are
kernels. Source: CUDA C++ Programming Guide, sections on CUDA graphs and on programmatic dependent launch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from motet.errors import DeviceError
from motet.runtime.device import Work
from motet.runtime.drivers.common.lifetime import OwnedResources
from motet.runtime.drivers.common.recording import check_work
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.api import CudaError
from motet.runtime.drivers.cuda.core import CudaCore
from motet.runtime.drivers.cuda.cublaslt import CublasError, Matmul
from motet.runtime.drivers.cuda.lanes import CommandLanes, spread
from motet.runtime.drivers.cuda.program import CudaExecutable, CudaKernel, alone, pack_size
from motet.runtime.drivers.cuda.quick_calls import CudaLaunch, make_launch

_FEW = 2  # commands up to which a graph does not pay
_INSTANCES = 8  # of a graph
_SMALL_INSTANCES = 64  # the same for such a small graph
_MOST_PROGRAMS = (1 << 31) - 1
_SCRATCH_ALIGNMENT = 128
_LIGHT = 48 << 10  # bytes of shared memory up to which several blocks fit on an SM in any arrangement
_WORKSPACE_ALIGNMENT = 256  # of a library's workspace
_OTHER_GRAPH = (1, 910)  # codes: an invalid value, and a topology that the graph cannot be updated to

# Puts a command on a stream by calling the function, and returns an event after it, at least if it is marked.
Around = Callable[["CudaCommand", Handle, Callable[[], None], bool], Handle | None]
Numbers = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class CudaCommand:
    """A launch, a library's product, a copy of `bytes` bytes, or no work if all are absent; `first` is the index of its
    first parameter. `kernel` is its name or `copy`. `waits` means that it waits for its dependences itself; `early`,
    that it may start while the only kernel that it depends on still runs."""

    launch: CudaLaunch | None
    bytes: int
    first: int
    after: tuple[int, ...]
    kernel: str
    waits: bool = False
    early: bool = False
    product: _Product | None = None
    source: str = ""  # the names in the source of what it computes

    @property
    def is_nothing(self) -> bool:
        return self.launch is None and self.product is None and not self.bytes


@dataclass(frozen=True)
class _Product:
    """A library's product in place of a kernel with `buffers` buffers; the address of its workspace is `space` after
    them."""

    matmul: Matmul
    buffers: int
    space: int


@dataclass(eq=False)
class _Graph:
    """A graph, the nodes of its commands in it, and the parameters of each launch."""

    handle: Handle
    places: list[Handle]
    nodes: list[Handle]


@dataclass(eq=False)
class GraphInstance:
    """An executable graph and the parameters that it is set for. If the graph is set for other parameters, it moves to
    another instance, and `handle` becomes 0."""

    handle: Handle
    values: Numbers


class CudaCommandBuffer:
    """See `motet.runtime.device.CommandBuffer`. Run it with the device's lock held and its context current, on `bases`:
    the addresses of the externals, then that of `scratch` bytes for the kernels."""

    def __init__(
        self, device: CudaCore, resources: OwnedResources, executable: CudaExecutable, work: Sequence[Work],
        externals: int, scratch: int,
    ) -> None:
        uri = device.info.uri
        self.context = device.current.context
        self.executable = executable
        self.externals = externals
        self.needed = check_work(uri, work, executable.by_name, externals)
        self._api = device.api
        self._lose = device.lose
        self._overlaps = device.overlaps
        self._resources = resources
        self.scratch = 0
        values: list[int] = []
        moving: list[tuple[int, int, int]] = []  # index of an address, its external, and the offset
        drafts: list[tuple[Work, CudaKernel | None, int]] = []
        for index, item in enumerate(work):
            kernel = executable.by_name[item.kernel] if item.op == "launch" else None
            first = len(values)
            for number, reference in enumerate(item.references):
                moving.append((first + number, reference.external, reference.offset))
                values.append(0)
            if kernel is not None:
                values += _sizes(f"device {uri}: command {index}", item, kernel)
                _check_product(f"device {uri}: command {index}", item, kernel)
                if own := _scratch_of(kernel, scratch, item.tasks):
                    if kernel.matmul is not None:
                        self.scratch = _up(self.scratch, _WORKSPACE_ALIGNMENT)
                    moving.append((len(values), externals, self.scratch))
                    self.scratch += own
                values += [0, 0]  # hidden parameters: the scratch memory and that of profilers
            drafts.append((item, kernel, first))
        self._values: Numbers = np.array(values, np.uint64)
        self._pointers: Numbers = self._values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
        self.commands = [self._command(item, kernel, first) for item, kernel, first in drafts]
        self.commands = [self._begun_early(command) for command in self.commands]
        self.kernels = tuple(dict.fromkeys(c.kernel for c in self.commands if c.launch is not None or c.product))
        self._capturing: Handle | None = None  # a stream on which library calls are captured
        places, which, offsets = zip(*moving, strict=True) if moving else ((), (), ())
        self._places = np.array(places, np.intp)
        self._which = np.array(which, np.intp)
        self._offsets: Numbers = np.array(offsets, np.uint64)
        self._pointed: tuple[int, ...] = ()  # the buffers for which the parameters are set
        self._command_of = np.repeat(
            np.arange(len(drafts)), np.diff([*(first for *_, first in drafts), len(values)])
        )
        self._graph: _Graph | None = None
        self._instances: dict[tuple[int, ...], GraphInstance] = {}  # in the order in which they were set
        self._met: dict[tuple[int, ...], None] = {}  # addresses on which few commands ran recently
        self._is_graph = sum(not c.is_nothing for c in self.commands) > _FEW

    def _command(self, item: Work, kernel: CudaKernel | None, first: int) -> CudaCommand:
        if kernel is None:
            return CudaCommand(None, item.references[0].bytes, first, item.after, "copy", source=item.source)
        if item.tasks == 0:
            return CudaCommand(None, 0, first, item.after, item.kernel)
        if kernel.matmul is not None:
            buffers = len(item.references)
            product = _Product(kernel.matmul, buffers, buffers + len(item.sizes))
            return CudaCommand(None, 0, first, item.after, item.kernel, product=product, source=item.source)
        address = self._pointers.ctypes.data + 8 * first
        launch = make_launch(kernel.function, item.tasks, kernel.threads, kernel.facts.shared, address)
        waits = kernel.facts.waits and self._overlaps
        return CudaCommand(launch, 0, first, item.after, item.kernel, waits, source=item.source)

    # -- submitting ------------------------------------------------------------------------------

    def run(self, bases: tuple[int, ...], stream: Handle) -> None:
        """Put all commands on a stream."""
        instance = self.instance(bases)
        if instance is None:
            self.run_in_order(bases, stream)
        else:
            self._api.executable_launch(instance.handle, stream)

    def instance(self, bases: tuple[int, ...]) -> GraphInstance | None:
        """A graph set for `bases`; None if few commands, not run on these addresses recently, are better launched in
        sequence."""
        instance = self._instances.get(bases)
        if instance is None and not self._is_graph and bases not in self._met:
            if len(self._met) >= _SMALL_INSTANCES:
                del self._met[next(iter(self._met))]
            self._met[bases] = None
            return None
        return instance or self._instance_for(bases)

    def run_checked(self, bases: tuple[int, ...], stream: Handle) -> None:
        """Put the commands on a stream in order, and wait for each. Call with the lock held."""

        def after(command: CudaCommand) -> None:
            try:
                self._api.stream_synchronize(stream)
            except CudaError as error:
                if not self._lose(error, [command.kernel], alone=True):
                    raise

        self.run_in_order(bases, stream, after)

    def run_in_order(
        self, bases: tuple[int, ...], stream: Handle, after: Callable[[CudaCommand], None] | None = None
    ) -> None:
        """Put the commands on a stream in order."""
        self._point_to(bases)
        for number, command in enumerate(self.commands):
            self._put(command, stream, command.early and command.after == (number - 1,) and after is None)
            if after is not None:
                after(command)

    def run_on(
        self, bases: tuple[int, ...], lanes: CommandLanes, streams: Sequence[Handle], around: Around, *,
        overlaps: bool = False,
    ) -> None:
        """Put the commands on several streams. The first stream begins before all others and ends after them; `around`
        puts a command on its stream, and returns an event after it if it is marked. `overlaps` lets commands begin
        early."""
        api = self._api
        self._point_to(bases)
        if lanes.last:
            begun = api.event_create()
            api.event_record(begun, streams[0])
            for stream in streams[1 : len(lanes.last) + 1]:
                api.stream_wait(stream, begun)
            api.event_destroy(begun)
        ends: dict[int, Handle] = {}
        for number, (command, lane) in enumerate(zip(self.commands, lanes.of, strict=True)):
            for before in command.after:
                if lanes.of[before] != lane:
                    api.stream_wait(streams[lane], ends[before])
            early = overlaps and command.early and command.after == (lanes.previous[number],)
            put = functools.partial(self._put, command, streams[lane], early)
            if (end := around(command, streams[lane], put, number in lanes.marked)) is not None:
                ends[number] = end
        for number in lanes.last:
            api.stream_wait(streams[0], ends[number])

    def lanes(self, count: int) -> CommandLanes:
        """The commands spread over at most `count` streams."""
        return spread([command.after for command in self.commands], count)

    def _put(self, command: CudaCommand, stream: Handle, early: bool = False) -> None:
        if command.launch is not None:
            self._api.launch(command.launch, stream, early)
        elif command.product is not None:
            self._multiply(command, command.product, stream)
        elif command.bytes:
            source, target = (int(value) for value in self._values[command.first : command.first + 2])
            self._api.copy(target, source, command.bytes, stream)

    def _multiply(self, command: CudaCommand, product: _Product, stream: Handle) -> None:
        """Raises DeviceError if the library refuses the product."""
        first, matmul = command.first, product.matmul
        addresses: list[int] = self._values[first : first + product.buffers].tolist()
        space = int(self._values[first + product.space]) if matmul.workspace else 0
        try:
            matmul.run(addresses, space, stream)
        except CublasError as error:
            where = f"device {self.executable.device.info.uri}: kernel {command.kernel}"
            raise DeviceError(f"{where}: by cuBLASLt: {error}") from error

    def single(self) -> tuple[CudaLaunch, list[int], list[tuple[int, int, int]]] | None:
        """The work if it is a single launch: its parameters, and those that are addresses, each as (index, external,
        offset)."""
        if len(self.commands) != 1 or self.commands[0].launch is None:
            return None
        moving = zip(self._places, self._which, self._offsets, strict=True)
        return self.commands[0].launch, self._values.tolist(), [(int(p), int(w), int(o)) for p, w, o in moving]

    def _point_to(self, bases: tuple[int, ...]) -> None:
        if bases != self._pointed:
            self._pointed = bases
            self._values[self._places] = np.array(bases, np.uint64)[self._which] + self._offsets

    # -- graphs ----------------------------------------------------------------------------------

    def _instance_for(self, bases: tuple[int, ...]) -> GraphInstance:
        """An instance set for `bases`: a new one, or the one set least recently."""
        self._point_to(bases)
        if len(self._instances) < (_INSTANCES if self._is_graph else _SMALL_INSTANCES):
            instance = self._instantiate()
        else:
            before = self._instances.pop(next(iter(self._instances)))
            instance = GraphInstance(before.handle, before.values)
            before.handle = 0
            changed: list[int] = np.unique(self._command_of[self._values != instance.values]).tolist()
            if self._set(instance.handle, changed):
                instance.values[:] = self._values
            else:
                instance = self._instantiate()
        self._instances[bases] = instance
        return instance

    def _instantiate(self) -> GraphInstance:
        is_new = self._graph is None
        if self._graph is None:
            self._graph = self._build()
        handle = self._api.graph_instantiate(self._graph.handle)
        api = self._api
        self._resources.add(lambda: api.executable_destroy(handle))
        # A new instance has the parameters with which the graph was built.
        if not is_new and not self._set(handle, range(len(self.commands))):
            for instance in self._instances.values():  # another graph cannot update any of them
                instance.handle = 0
            self._instances.clear()
            self._graph = None
            return self._instantiate()
        return GraphInstance(handle, self._values.copy())

    def _set(self, handle: Handle, numbers: Iterable[int]) -> bool:
        """Set commands of an instance to the current parameters; False if a library's graph for them has another
        topology."""
        for number in numbers:
            try:
                self._update(handle, number)
            except CudaError as error:
                if self.commands[number].product is None or error.code not in _OTHER_GRAPH:
                    raise
                return False
        return True

    def _build(self) -> _Graph:
        api = self._api
        graph = _Graph(api.graph_create(), [], [])
        handle = graph.handle
        self._resources.add(lambda: api.graph_destroy(handle))
        for command in self.commands:
            after = [graph.places[index] for index in dict.fromkeys(command.after)]
            node = None
            if command.launch is not None:
                node = api.kernel_node(command.launch)
                place = api.graph_add_kernel(handle, after, node, command.early)
            elif command.product is not None:
                child = self._captured(command, command.product)
                place = api.graph_add_child(handle, after, child)
                api.graph_destroy(child)
            elif command.bytes:
                source, target = (int(value) for value in self._values[command.first : command.first + 2])
                place = api.graph_add_copy(handle, after, target, source, command.bytes, self.context)
            else:
                place = api.graph_add_nothing(handle, after)
            graph.places.append(place)
            graph.nodes.append(node)
        return graph

    def _begun_early(self, command: CudaCommand) -> CudaCommand:
        """A command that waits itself for the only kernel it depends on, launched so that it may start early.

        Its blocks are then placed on SMs with room while that kernel still runs. Blocks that need an SM alone, by much
        shared memory, stay evenly distributed. A few smaller blocks would be placed together on idle SMs; they request
        so much shared memory that they are placed alone, too. Other kernels start early if their blocks are so light
        that placement does not matter, or so many that they fill the SMs anyway."""
        before = [self.commands[index] for index in set(command.after)]
        launch, gpu = command.launch, self.executable.device.gpu
        if launch is None or not command.waits or len(before) != 1 or before[0].launch is None:
            return command
        if _LIGHT < launch.shared < alone(gpu.shared) and launch.programs <= gpu.multiprocessors:
            launch = make_launch(
                launch.function, launch.programs, launch.threads, alone(gpu.shared), launch.parameters
            )
        many = min(launch.programs, before[0].launch.programs) >= gpu.multiprocessors
        if launch.shared <= _LIGHT or launch.shared >= alone(gpu.shared) or many:
            return replace(command, launch=launch, early=True)
        return command

    def _update(self, handle: Handle, number: int) -> None:
        graph, command = self._graph, self.commands[number]
        if graph is None:
            return
        if command.launch is not None:
            self._api.executable_set_kernel(handle, graph.places[number], graph.nodes[number])
        elif command.product is not None:
            child = self._captured(command, command.product)
            try:
                self._api.executable_set_child(handle, graph.places[number], child)
            finally:
                self._api.graph_destroy(child)
        elif command.bytes:
            source, target = (int(value) for value in self._values[command.first : command.first + 2])
            self._api.executable_set_copy(handle, graph.places[number], target, source, command.bytes, self.context)


    def _captured(self, command: CudaCommand, product: _Product) -> Handle:
        """A library's call for a command, with the current parameters, as a graph."""
        stream, api = self._capturing, self._api
        if stream is None:
            stream = self._capturing = api.stream_create()
            self._resources.add(lambda: api.stream_destroy(stream))
        return api.captured(stream, lambda: self._multiply(command, product, stream))


def _scratch_of(kernel: CudaKernel, scratch: int, tasks: int) -> int:
    """Scratch bytes for all programs of a launch, or for the library call in its place."""
    if kernel.matmul is not None:
        return _up(kernel.matmul.workspace, _WORKSPACE_ALIGNMENT)
    each = -(-max(kernel.facts.scratch, scratch) // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT
    return each * tasks


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _check_product(where: str, item: Work, kernel: CudaKernel) -> None:
    """Raises DeviceError for a library call that exceeds its buffers."""
    if kernel.matmul is None:
        return
    call = kernel.matmul.call
    for name, operand, rows, columns in call.operands():
        there = item.references[operand.buffer].bytes
        if (needed := operand.end(rows, columns, call.batch)) > there:
            raise DeviceError(
                f"{where}: kernel {item.kernel}: library: {name}: {needed:,} bytes of a buffer of {there:,}"
            )


def _sizes(where: str, item: Work, kernel: CudaKernel) -> list[int]:
    """The sizes of a launch as kernel parameters. Raises DeviceError if the launch does not match its kernel."""
    facts = kernel.facts
    if len(item.references) != facts.buffers:
        raise DeviceError(f"{where}: kernel {item.kernel}: {len(item.references)} buffers; expected {facts.buffers}")
    if len(item.sizes) != len(facts.sizes):
        raise DeviceError(f"{where}: kernel {item.kernel}: {len(item.sizes)} sizes; expected {len(facts.sizes)}")
    if item.tasks > _MOST_PROGRAMS:
        raise DeviceError(f"{where}: kernel {item.kernel}: {item.tasks:,} tasks; expected at most {_MOST_PROGRAMS:,}")
    packed: list[int] = []
    for value, kind in zip(item.sizes, facts.sizes, strict=True):
        number = pack_size(value, kind)
        if number is None:
            raise DeviceError(f"{where}: kernel {item.kernel}: a size of {value:,}; expected {kind}")
        packed.append(number)
    return packed
