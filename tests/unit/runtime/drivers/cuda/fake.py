"""A driver for tests: memory of this process, streams that are threads, and the checks' kernels in Python.

It does what NVIDIA's driver is said to do, no more: events are as of their last recording, the commands of a graph run
in any order that their dependences allow, and an error of a kernel stays for good. `calls` counts what was called.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import queue
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.runtime.drivers.cuda.api import OUT_OF_MEMORY, CudaApi, CudaError, Gpu
from motet.runtime.drivers.cuda.cublaslt import Functions
from motet.runtime.drivers.cuda.quick_calls import CudaLaunch

CAPABILITY = (9, 0)
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"


def uuid_of(ordinal: int) -> str:
    """The UUID of a GPU, of sixteen at most."""
    return f"{UUID[:-1]}{15 - ordinal:x}"


class Fault(Exception):
    """A kernel that goes wrong with an error of the driver."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


@dataclass(frozen=True)
class Function:
    """A kernel: what it does with the number of programs and its parameters, which are numbers of 64 bits."""

    name: str
    parameters: int
    run: Callable[[int, list[int]], None]


class Commands:
    """What is to be done on a stream; or, while it is captured, what would be. `captured` is the graph that a program
    captures, and `tails` are the nodes after which the next one comes."""

    def __init__(self) -> None:
        self.recorded: list[Callable[[], object]] | None = None
        self.captured: Graph | None = None
        self.tails: list[Node] = []
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.get = self._queue.get

    def put(self, work: Callable[[], object] | None) -> None:
        if self.captured is not None and work is not None:
            self.tails = [Node("child", self.tails, values=[work])]
            self.captured.nodes += self.tails
        elif self.recorded is not None and work is not None:
            self.recorded.append(work)
        else:
            self._queue.put(work)


class Stream:
    """Work in order, on a thread."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.work = Commands()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (work := self.work.get()) is not None:
            try:
                work()
            except Fault as fault:
                self.api.broken = fault.code


@dataclass(eq=False)
class FakeEvent:
    timed: bool = False
    mark: threading.Event | None = None
    captured: tuple[Graph, list[Node]] | None = None  # where it was recorded
    time: float = 0.0
    destroyed: bool = False


@dataclass(eq=False)
class Node:
    kind: str
    after: list[Node]
    launch: CudaLaunch | None = None
    values: list[Any] = field(default_factory=list)
    early: bool = False

    def history(self) -> set[Node]:
        """The node, and all that it comes after, directly or not."""
        found, left = {self}, [self]
        while left:
            more = set(left.pop().after) - found
            found |= more
            left += more
        return found


@dataclass(eq=False)
class Graph:
    nodes: list[Node] = field(default_factory=list)


class Pool(set[int]):
    """The addresses of blocks, and which other GPUs reach them."""

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        self.ordinal = ordinal
        self.open_to: set[int] = set()


def array(address: int, count: int, dtype: Any) -> np.ndarray:
    """Memory as an array."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype)


class FakeApi(CudaApi):
    """`gpus` GPUs of `memory` bytes."""

    def __init__(
        self, memory: int = 1 << 30, capability: tuple[int, int] = CAPABILITY, gpus: int = 1, peers: bool = True
    ) -> None:
        self.gpus = gpus
        self.peers = peers
        self.reached: set[tuple[str, str]] = set()
        self.contexts = threading.local()
        self.memory = memory
        self.capability = capability
        self.calls: Counter[str] = Counter()
        self.early: list[bool] = []  # of each launch on a stream
        self.graphs: list[Graph] = []
        self.broken = 0
        self.retained = 0
        self.opened: list[int] = []  # the GPUs of which a context was asked for, each time
        self.worked: list[tuple[str, int]] = []  # kernels that were launched, each with its stream
        self.blocks: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.alive: Counter[str] = Counter()
        self.kernels: dict[str, Callable[[int, list[int]], None]] = dict(KERNELS)
        self.capturing: set[int] = set()
        self.driver_version = 13000
        self._random = random.Random(20)
        self.gates: list[threading.Event] = []
        self._handles = itertools.count(1000)
        legacy = Stream(self)
        self.streams: dict[int, Stream] = {0: legacy, 1: legacy}  # by handle; these are the legacy default stream
        self.stream_contexts: dict[int, str] = {}
        self.pools: list[Pool] = []
        self.libraries: list[Functions] = []  # of products
        self.stiff = False  # graphs within graphs cannot become others
        self.foreign: list[tuple[int, int, int]] = []  # memory of other libraries: address, bytes, GPU

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if callable(value) and not name.startswith("_") and hasattr(CudaApi, name):
            self.calls[name] += 1
            if self.broken and name not in ("push", "pop", "gpu", "count", "start"):
                raise CudaError(self.broken, "BROKEN", name)
        return value

    # -- GPUs ------------------------------------------------------------------------------------

    def start(self) -> None: ...

    def count(self) -> int:
        return self.gpus

    def gpu(self, ordinal: int) -> Gpu:
        return Gpu("a GPU for tests", uuid_of(ordinal), self.capability, self.memory, 4, 200 << 10)

    def retain(self, ordinal: int) -> Any:
        self.retained += 1
        self.opened.append(ordinal)
        return f"context {ordinal}"

    def release(self, ordinal: int) -> None:
        self.retained -= 1

    def current_context(self) -> Any:
        return self._stack()[-1] if self._stack() else 0

    def push(self, context: Any) -> None:
        self._stack().append(context)

    def pop(self) -> None:
        self._stack().pop()

    def _stack(self) -> list[str]:
        if not hasattr(self.contexts, "stack"):
            self.contexts.stack = []
        return self.contexts.stack

    def can_reach(self, ordinal: int, other: int) -> bool:
        return self.peers

    def reach(self, context: Any) -> None:
        self.reached.add((self._stack()[-1], context))

    # -- memory ----------------------------------------------------------------------------------

    def pool_create(self, ordinal: int) -> Any:
        self.alive["pool"] += 1
        self.pools.append(Pool(ordinal))
        return self.pools[-1]

    def pool_let_in(self, pool: Any, ordinal: int) -> None:
        pool.open_to.add(ordinal)

    def pool_allocate(self, pool: Any, size: int, stream: int) -> int:
        if size + sum(len(block) for block in self.blocks.values()) > self.memory:
            raise CudaError(OUT_OF_MEMORY, "OUT_OF_MEMORY", "cuMemAllocFromPoolAsync")
        block = np.random.default_rng(size).integers(0, 256, size + 512, np.uint8)
        address = -(-block.ctypes.data // 512) * 512
        self.blocks[address] = block
        pool.add(address)
        return address

    def pool_trim(self, pool: Any) -> None: ...

    def pool_destroy(self, pool: Any) -> None:
        self.alive["pool"] -= 1
        for address in pool:
            self.blocks.pop(address, None)

    def free(self, address: int, stream: Any) -> None:
        del self.blocks[address]

    def host_allocate(self, size: int) -> int:
        block = np.zeros(size, np.uint8)
        self.pinned[block.ctypes.data] = block
        return block.ctypes.data

    def host_free(self, address: int) -> None:
        del self.pinned[address]

    def is_pinned(self, address: int) -> bool:
        return any(start <= address < start + block.size for start, block in self.pinned.items())

    def ordinal_of(self, address: int) -> int | None:
        for start, size, ordinal in self.foreign:
            if start <= address < start + size:
                return ordinal
        for pool in self.pools:
            if any(start <= address < start + self.blocks[start].size for start in pool if start in self.blocks):
                return pool.ordinal
        return None

    # -- streams and events ----------------------------------------------------------------------

    def stream_create(self) -> int:
        self.alive["stream"] += 1
        handle = next(self._handles)
        self.stream_contexts[handle] = self._stack()[-1] if self._stack() else "context 0"
        self.streams[handle] = Stream(self)
        return handle

    def stream_destroy(self, stream: int) -> None:
        self.alive["stream"] -= 1
        destroyed = self.streams.pop(stream)
        destroyed.work.put(None)
        destroyed.thread.join()

    def hold(self, stream: int) -> Callable[[], None]:
        """Nothing that comes after is done on a stream until what this gives is called."""
        gate = threading.Event()
        self.gates.append(gate)

        def wait() -> None:
            gate.wait()

        self.streams[stream].work.put(wait)
        return gate.set

    def stream_synchronize_quietly(self, stream: int) -> None:
        """Also where a kernel went wrong."""
        done = threading.Event()
        self.streams[stream].work.put(done.set)
        done.wait()

    def context_synchronize(self) -> None:
        for stream in list(self.streams):
            self.stream_synchronize(stream)

    def stream_context(self, stream: int) -> str:
        if stream not in self.streams:
            raise CudaError(400, "INVALID_HANDLE", "cuStreamGetCtx")
        return self.stream_contexts[stream]

    def is_capturing(self, stream: int) -> bool:
        found = self.streams.get(stream)
        return stream in self.capturing or (found is not None and found.work.captured is not None)

    def begin_capture(self, stream: int) -> None:
        """What is put on a stream, and on those that wait for its events, becomes part of a graph."""
        self.streams[stream].work.captured = Graph()

    def end_capture(self, stream: int) -> Graph:
        """The graph. All that was put on other streams must be before the end of this one."""
        work = self.streams[stream].work
        graph = work.captured
        assert graph is not None
        joined = {node for tail in work.tails for node in tail.history()}
        for other in list(self.streams.values()):
            if other.work.captured is graph:
                if not joined.issuperset(other.work.tails):
                    raise CudaError(904, "STREAM_CAPTURE_UNJOINED", "cuStreamEndCapture")
                other.work.captured, other.work.tails = None, []
        return graph

    def _wait_captured(self, stream: int, graph: Graph, nodes: list[Node]) -> None:
        work = self.streams[stream].work
        if work.captured not in (None, graph):
            raise CudaError(903, "STREAM_CAPTURE_MERGE", "cuStreamWaitEvent")
        work.captured = graph
        work.tails = list({*work.tails, *nodes})

    def beside_captures(self) -> Any:
        return contextlib.nullcontext()

    def stream_wait(self, stream: int, event: FakeEvent) -> None:
        if event.captured is not None:
            self._wait_captured(stream, *event.captured)
            return
        if self.streams[stream].work.captured is not None and event.mark is not None:
            raise CudaError(905, "STREAM_CAPTURE_ISOLATION", "cuStreamWaitEvent")
        mark = event.mark
        if mark is not None:

            def wait() -> None:
                mark.wait()

            self.streams[stream].work.put(wait)

    def stream_synchronize(self, stream: int) -> None:
        done = threading.Event()
        self.streams[stream].work.put(done.set)
        done.wait()
        if self.broken:
            raise CudaError(self.broken, "BROKEN", "cuStreamSynchronize")

    def event_create(self, timed: bool = False) -> FakeEvent:
        self.alive["event"] += 1
        return FakeEvent(timed)

    def event_destroy(self, event: FakeEvent) -> None:
        assert not event.destroyed
        event.destroyed = True
        self.alive["event"] -= 1

    def event_record(self, event: FakeEvent, stream: int) -> None:
        if stream not in self.streams:
            raise CudaError(400, "INVALID_HANDLE", "cuEventRecord")
        work = self.streams[stream].work
        event.captured = None if work.captured is None else (work.captured, list(work.tails))
        if event.captured is not None:
            return
        mark = event.mark = threading.Event()

        def record() -> None:
            event.time = time.perf_counter()
            mark.set()

        work.put(record)

    def event_query(self, event: FakeEvent) -> bool:
        return event.mark is None or event.mark.is_set()

    def event_synchronize(self, event: FakeEvent) -> None:
        if event.mark is not None:
            event.mark.wait()

    def elapsed(self, first: FakeEvent, second: FakeEvent) -> float:
        assert first.timed and second.timed
        return second.time - first.time

    # -- moving ----------------------------------------------------------------------------------

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        if not self.is_pinned(source):  # the driver has read it when it returns
            memory = ctypes.string_at(source, size)
            self.streams[stream].work.put(lambda: ctypes.memmove(target, memory, size))
            return
        self.streams[stream].work.put(lambda: ctypes.memmove(target, source, size))

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        assert self.is_pinned(target)
        self.streams[stream].work.put(lambda: ctypes.memmove(target, source, size))

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self.streams[stream].work.put(lambda: ctypes.memmove(target, source, size))

    def copy_peer(self, target: int, context: Any, source: int, other: Any, size: int, stream: int) -> None:
        self.streams[stream].work.put(lambda: ctypes.memmove(target, source, size))

    def fill(self, target: int, byte: int, size: int, stream: int) -> None:
        self.streams[stream].work.put(lambda: ctypes.memset(target, byte, size))

    # -- code ------------------------------------------------------------------------------------

    def module_load(self, image: bytes) -> dict[str, Function]:
        text = image.decode(errors="replace")
        if ".version" not in text or any(text.count(begin) != text.count(end) for begin, end in ("{}", "()")):
            raise CudaError(218, "INVALID_PTX", "cuModuleLoadDataEx", "syntax error")
        if (missing := re.search(r"\.extern \.func (\w+)", text)) is not None:
            raise CudaError(218, "INVALID_PTX", "cuModuleLoadDataEx", f"Unresolved extern function '{missing[1]}'")
        self.alive["module"] += 1
        return {
            match[1]: Function(match[1], match[2].count(".param"), self.kernels[match[1]])
            for match in re.finditer(r"\.entry (\w+)\(([^)]*)\)", text)
        }

    def version(self) -> int:
        return self.driver_version

    def compile_ptx(self, text: bytes) -> bytes:
        if b".version" not in text:
            raise CudaError(218, "INVALID_PTX", "cuLinkComplete")
        return b"\x7fELF" + text

    def module_function(self, module: dict[str, Function], name: str) -> Function:
        if name not in module:
            raise CudaError(500, "NOT_FOUND", "cuModuleGetFunction")
        return module[name]

    def module_unload(self, module: Any) -> None:
        self.alive["module"] -= 1

    def allow_shared(self, function: Any, size: int) -> None: ...

    def launch(self, launch: CudaLaunch, stream: int, early: bool = False) -> None:
        values = parameters(launch)
        self.early.append(early)
        self.worked.append((launch.function.name, stream))
        self.streams[stream].work.put(lambda: launch.function.run(launch.programs, values))

    # -- graphs ----------------------------------------------------------------------------------

    def graph_create(self) -> Graph:
        self.alive["graph"] += 1
        self.graphs.append(Graph())
        return self.graphs[-1]

    def graph_destroy(self, graph: Graph) -> None:
        self.alive["graph"] -= 1

    def kernel_node(self, launch: CudaLaunch) -> CudaLaunch:
        return launch

    def graph_add_kernel(self, graph: Graph, after: Sequence[Node], node: CudaLaunch, early: bool = False) -> Node:
        return self._add(graph, Node("launch", list(after), node, parameters(node), early))

    def graph_add_copy(
        self, graph: Graph, after: Sequence[Node], target: int, source: int, size: int, context: Any
    ) -> Node:
        return self._add(graph, Node("copy", list(after), None, [target, source, size]))

    def product_libraries(self) -> Iterator[Functions]:
        yield from self.libraries

    def captured(self, stream: int, put: Callable[[], None]) -> Graph:
        work = self.streams[stream].work
        work.recorded = []
        try:
            put()
            self.alive["graph"] += 1
            return Graph([Node("recorded", [], values=work.recorded)])
        finally:
            work.recorded = None

    def graph_add_child(self, graph: Graph, after: Sequence[Node], child: Graph) -> Node:
        return self._add(graph, Node("child", list(after), values=child.nodes[0].values))

    def executable_set_child(self, executable: dict[Node, list[Any]], place: Node, child: Graph) -> None:
        if self.stiff:
            raise CudaError(910, "GRAPH_EXEC_UPDATE_FAILURE", "cuGraphExecChildGraphNodeSetParams")
        executable[place] = list(child.nodes[0].values)

    def graph_add_nothing(self, graph: Graph, after: Sequence[Node]) -> Node:
        return self._add(graph, Node("nothing", list(after)))

    def _add(self, graph: Graph, node: Node) -> Node:
        graph.nodes.append(node)
        return node

    def graph_instantiate(self, graph: Graph) -> dict[Node, list[int]]:
        self.alive["executable"] += 1
        return {node: list(node.values) for node in graph.nodes}

    def executable_set_kernel(self, executable: dict[Node, list[int]], place: Node, node: CudaLaunch) -> None:
        executable[place] = parameters(node)

    def executable_set_copy(
        self, executable: dict[Node, list[int]], place: Node, target: int, source: int, size: int, context: Any
    ) -> None:
        executable[place] = [target, source, size]

    def executable_launch(self, executable: dict[Node, list[int]], stream: int) -> None:
        left, done = dict(executable), set[Node]()
        while left:
            node = self._random.choice([node for node in left if done.issuperset(node.after)])
            values = left.pop(node)
            done.add(node)
            if node.launch is not None:
                self.worked.append((node.launch.function.name, stream))
                run = functools.partial(node.launch.function.run, node.launch.programs, values)
                self.streams[stream].work.put(run)
            elif node.kind == "copy":
                self.streams[stream].work.put(lambda values=values: ctypes.memmove(*values))
            elif node.kind == "child":
                for each in values:
                    self.streams[stream].work.put(each)

    def try_executable_launch(self, executable: dict[Node, list[int]], stream: int) -> int:
        self.executable_launch(executable, stream)
        return 0

    def executable_destroy(self, executable: Any) -> None:
        self.alive["executable"] -= 1


def parameters(launch: CudaLaunch) -> list[int]:
    """The parameters, each through its pointer, as they are at the time of the call."""
    pointers = array(launch.parameters, launch.function.parameters, np.uint64)
    return [int(array(int(pointer), 1, np.uint64)[0]) for pointer in pointers]


# -- kernels -----------------------------------------------------------------------------------------


def _count(tasks: int, p: list[int]) -> None:
    array(p[0], tasks, np.int32)[:] += 1


def _affine(tasks: int, p: list[int]) -> None:
    array(p[1], tasks, np.int32)[:] = 2 * array(p[0], tasks, np.int32) + np.uint64(p[2]).astype(np.int32)


def _multiply_add(tasks: int, p: list[int]) -> None:
    a, x, b, y = (array(address, tasks, np.float32) for address in p[:4])
    with np.errstate(all="ignore"):
        y[:] = a * x + b


def _show_sizes(tasks: int, p: list[int]) -> None:
    array(p[0], tasks, np.uint64)[:] = p[1 : 1 + tasks]


def _gather(tasks: int, p: list[int]) -> None:
    array(p[0], tasks, np.uint8)[:] = [int(array(address, 1, np.uint8)[0]) for address in p[1 : 1 + tasks]]


def _use_scratch(tasks: int, p: list[int]) -> None:
    words, base = p[1], p[2]
    stride = -(-8 * words // 128) * 128
    for task in range(tasks):
        own = array(base + task * stride, words, np.int64)
        own[:] = task + np.arange(words)
        array(p[0], tasks, np.int64)[task] = int(own.sum()) * 64 + (base + task * stride) % 64


def _spin(tasks: int, p: list[int]) -> None:
    time.sleep(p[1] * 1e-6)
    array(p[0], 1, np.int64)[0] = p[1]


def _move(tasks: int, p: list[int]) -> None:
    ctypes.memmove(p[1], p[0], p[3])
    ctypes.memset(p[2], p[5], p[4])


def _call_helper(tasks: int, p: list[int]) -> None:
    array(p[0], tasks, np.int64)[:] = 7 - np.arange(tasks) ** 2


def _fail(code: int) -> Callable[[int, list[int]], None]:
    def run(tasks: int, p: list[int]) -> None:
        raise Fault(code)

    return run


KERNELS: dict[str, Callable[[int, list[int]], None]] = {
    "count": _count, "affine": _affine, "multiply_add": _multiply_add, "show_sizes": _show_sizes, "gather": _gather,
    "use_scratch": _use_scratch, "spin": _spin, "move": _move, "call_helper": _call_helper, "trap": _fail(719),
    "wild": _fail(700), "endless": _fail(719),
}
