"""Devices that run late, and fail when they are told to: drivers that wrap any other, registered like a plug-in's.

    install(folder)                                 # entry points for `noisy-null` and `noisy-host`
    noisy-null/1?delay=2e-3&seed=7                  # null/1, everything late by up to two milliseconds, twice
    noisy-null?fault=sum&at=2&queues=4              # the third dispatch of kernel `sum` fails

What is submitted begins late, its point is reached late, and the thread that submits sleeps, all at random. What a
device was asked for, it keeps in a log, so that tests can see which points were poisoned and what was ordered.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from motet.artifact.schema import Variant
from motet.artifact.uri import split_uri
from motet.compiler.targets.cpu import X86_64_V3, X86_64_V4
from motet.compiler.targets.family import Family
from motet.errors import DeviceError, KernelFault, MotetError
from motet.runtime.device import (
    API_VERSION,
    Buffer,
    CommandBuffer,
    Device,
    DeviceInfo,
    Event,
    Executable,
    Work,
    load_driver,
    open_device,
)
from motet.runtime.timeline import HostTimeline, Point

PREFIX = "noisy-"
_FEW = 0.3  # how many of the delays are none at all


@dataclass
class Entry:
    """One thing that a device was asked for. `buffers` are all that it works with, of a transfer the device's side;
    `begin` is when it was asked, `thread` by which."""

    kind: str
    device: NoisyDevice
    queue: int
    waits: tuple[Point, ...]
    begin: float
    thread: int
    buffers: tuple[Buffer, ...] = ()
    array: np.ndarray[Any, Any] | None = None
    work: tuple[Work, ...] = ()
    point: Point | None = None


class _NoisyTimeline(HostTimeline):
    """Notes when someone has waited for its points."""

    def __init__(self) -> None:
        super().__init__()
        self.noting = False
        self.seen: list[tuple[float, int, int]] = []  # when, in which thread, which value

    def wait(self, value: int, timeout: float | None = None) -> bool:
        reached = super().wait(value, timeout)
        if reached and self.noting:
            self.seen.append((time.perf_counter(), threading.get_ident(), value))
        return reached


@dataclass(frozen=True)
class NoisyCommands:
    """What the wrapped device recorded, and what it was recorded from."""

    inner: CommandBuffer
    executable: Executable
    work: tuple[Work, ...]
    scratch: int

    @property
    def externals(self) -> int:
        return self.inner.externals


class NoisyDevice:
    """See `motet.runtime.device.Device`."""

    def __init__(self, info: DeviceInfo, inner: Device, delay: float, seed: int) -> None:
        self.info = info
        self.inner = inner
        self.delay = delay
        self.log: list[Entry] = []
        self.logging = False
        self.timeline = _NoisyTimeline()
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self._fault: tuple[str, int] | None = None
        self._threads: set[threading.Thread] = set()

    @property
    def queues(self) -> int:
        return self.inner.queues

    def fail(self, kernel: str, at: int = 0) -> None:
        """Of the dispatches of `kernel` from now on, the one numbered `at` fails."""
        with self._lock:
            self._fault = (kernel, at)

    def keep_log(self, on: bool) -> None:
        """Begins a log, or ends it."""
        self.logging = self.timeline.noting = on
        if on:
            self.log.clear()
            self.timeline.seen.clear()

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> Buffer:
        return self.inner.allocate(size)

    def adopt(self, array: np.ndarray[Any, Any]) -> Buffer | None:
        return self.inner.adopt(array)

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        return self.inner.view(buffer)

    def write(
        self, target: Buffer, source: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        entry = self._entry("write", queue, waits, (target,), source)
        return self._late(entry, lambda held: self.inner.write(target, source, offset, held, queue))

    def read(
        self, source: Buffer, target: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        entry = self._entry("read", queue, waits, (source,), target)
        return self._late(entry, lambda held: self.inner.read(source, target, offset, held, queue))

    def copy(self, source: Buffer, target: Buffer, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        entry = self._entry("copy", queue, waits, (source, target))
        return self._late(entry, lambda held: self.inner.copy(source, target, held, queue))

    def fill(self, target: Buffer, byte: int, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        entry = self._entry("fill", queue, waits, (target,))
        return self._late(entry, lambda held: self.inner.fill(target, byte, held, queue))

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        if variant.family != self.info.family:
            return f"for {variant.family} devices"
        return self.inner.obstacle(structs.replace(variant, family=self.inner.info.family))

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Executable:
        return self.inner.load(objects, names)

    def record(
        self, executable: Executable, work: Sequence[Work], externals: int, scratch: int
    ) -> CommandBuffer:
        return NoisyCommands(self.inner.record(executable, work, externals, scratch), executable, tuple(work), scratch)

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        if not isinstance(work, NoisyCommands):
            raise DeviceError(f"device {self.info.uri}: submit: work that was recorded by another device")
        entry = self._entry("submit", queue, waits, tuple(buffers), None, work.work)
        failing = self._failing(work.work)
        if failing is None:
            return self._late(entry, lambda held: self.inner.submit(work.inner, buffers, held, queue))
        kept = _without_dependants(work.work, failing)
        rest = self.inner.record(work.executable, kept, work.externals, work.scratch)
        fault = KernelFault(self.info.uri, work.work[failing].kernel, "as the test asks for")
        return self._late(entry, lambda held: self.inner.submit(rest, buffers, held, queue), fault)

    def _failing(self, work: Sequence[Work]) -> int | None:
        """The command that is to fail now."""
        with self._lock:
            for number, item in enumerate(work):
                if self._fault is None or item.kernel != self._fault[0]:
                    continue
                kernel, left = self._fault
                self._fault = (kernel, left - 1) if left else None
                if not left:
                    return number
        return None

    # -- being late ------------------------------------------------------------------------------

    def _entry(
        self, kind: str, queue: int, waits: Sequence[Point], buffers: tuple[Buffer, ...],
        array: np.ndarray[Any, Any] | None = None, work: tuple[Work, ...] = (),
    ) -> Entry:
        return Entry(kind, self, queue, tuple(waits), time.perf_counter(), threading.get_ident(), buffers, array, work)

    def _draw(self) -> float:
        with self._lock:
            late = self._random.random() > _FEW
            return float(self._random.random()) * self.delay if late else 0.0

    def _late(
        self, entry: Entry, start: Callable[[Sequence[Point]], Point], fault: MotetError | None = None
    ) -> Point:
        """Begins late, ends late, and keeps the caller a while; with `fault` its point is poisoned in the end."""
        before, after, here = self._draw(), self._draw(), self._draw()
        gates = HostTimeline()
        gate = gates.next()
        inner = start([*entry.waits, gate])
        point = entry.point = self.timeline.next()
        if self.logging:
            self.log.append(entry)

        def follow() -> None:
            time.sleep(before)
            gates.signal(gate.value)
            with suppress(MotetError):
                inner.wait()
            error = inner.error or fault
            time.sleep(after)
            with self._lock:
                self._threads.discard(threading.current_thread())
            if error is None:
                self.timeline.signal(point.value)
            else:
                self.timeline.fail(point.value, error)

        thread = threading.Thread(target=follow, name=f"noise of {self.info.uri}", daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()
        time.sleep(here / 4)
        return point

    # -- its life --------------------------------------------------------------------------------

    def abort(self) -> None:
        self.inner.abort()

    def profile(self, on: bool) -> list[Event]:
        return self.inner.profile(on)

    def close(self) -> None:
        while True:
            with self._lock:
                waiting = list(self._threads)
            if not waiting:
                break
            for thread in waiting:
                thread.join()
        self.inner.close()


def _without_dependants(work: Sequence[Work], failing: int) -> list[Work]:
    """The commands that need nothing of one that fails."""
    gone = {failing}
    places: dict[int, int] = {}
    kept: list[Work] = []
    for number, item in enumerate(work):
        if number in gone or gone & set(item.after):
            gone.add(number)
            continue
        places[number] = len(kept)
        kept.append(replace(item, after=tuple(places[earlier] for earlier in item.after), waits=()))
    return kept


# -- being found -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoisyDriver:
    """Wraps the driver of a family; options that it does not know are that one's."""

    family: str
    api: int = API_VERSION

    @property
    def conformance_exempt(self) -> dict[str, str]:
        return dict(getattr(load_driver(self.family), "conformance_exempt", {}))

    def probe(self) -> Sequence[DeviceInfo]:
        return [
            replace(info, uri=PREFIX + info.uri, family=PREFIX + info.family, name=f"late and failing: {info.name}")
            for info in load_driver(self.family).probe()
        ]

    def open(self, info: DeviceInfo) -> Device:
        base, options = split_uri(info.uri)
        delay, seed = float(options.pop("delay", "0")), int(options.pop("seed", "0"))
        fault, at = options.pop("fault", None), int(options.pop("at", "0"))
        rest = "&".join(f"{key}={value}" for key, value in options.items())
        uri = base.removeprefix(PREFIX) + (f"?{rest}" if rest else "")
        inner = open_device(replace(info, uri=uri, family=self.family))
        device = NoisyDevice(info, inner, delay, seed)
        if fault is not None:
            device.fail(fault, at)
        return device


NULL, HOST = NoisyDriver("null"), NoisyDriver("host")
_TARGETS = {target.name: target for target in (X86_64_V4, X86_64_V3)}
NULL_FAMILY = Family("noisy-null", _TARGETS, (X86_64_V3.name,), options=("delay", "seed", "queues"))
HOST_FAMILY = Family("noisy-host", _TARGETS, (X86_64_V3.name,), options=("delay", "seed", "threads"))


def install(folder: Path) -> None:
    """Makes a distribution in `folder`, which belongs onto the path where modules are looked for."""
    about = folder / "noisy-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        f"[motet.drivers]\nnoisy-null = {__name__}:NULL\nnoisy-host = {__name__}:HOST\n"
        f"[motet.targets]\nnoisy-null = {__name__}:NULL_FAMILY\nnoisy-host = {__name__}:HOST_FAMILY\n"
    )


# -- what was asked for ------------------------------------------------------------------------------


@dataclass
class Access:
    """Bytes of this process that an entry reads and writes, from and to; the devices' memory lies in the process."""

    reads: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    writes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def meets(self, other: Access) -> bool:
        return (
            overlap(self.writes, other.writes) or overlap(self.writes, other.reads) or overlap(self.reads, other.writes)
        )


def overlap(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(max(a, c) < min(b, d) for a, b in some for c, d in others)


def access_of(entry: Entry, reads: Sequence[int]) -> Access:
    """`reads` are, of the commands of a submission, how many of the references each only reads."""
    access = Access()
    spans = [(buffer.address, buffer.address + buffer.bytes) for buffer in entry.buffers]
    if entry.kind == "submit":
        for item, count in zip(entry.work, reads, strict=True):
            for place, reference in enumerate(item.references):
                begin = spans[reference.external][0] + reference.offset
                (access.reads if place < count else access.writes).append((begin, begin + reference.bytes))
        return access
    if entry.array is not None:
        begin = entry.array.ctypes.data
        array = (begin, begin + entry.array.nbytes)
        device = (spans[0][0], spans[0][0] + entry.array.nbytes)
        access.reads.append(array if entry.kind == "write" else device)
        access.writes.append(device if entry.kind == "write" else array)
    elif entry.kind == "copy":
        access.reads.append(spans[0])
        access.writes.append(spans[1])
    else:
        access.writes.append(spans[0])
    return access


def unordered(entries: Sequence[Entry], accesses: Sequence[Access]) -> list[tuple[int, int]]:
    """The pairs of entries, by number, that touch the same bytes, one of them writing, and that nothing orders:
    neither points nor the thread that submitted both, having waited for the first."""
    number = {(id(entry.point.timeline), entry.point.value): n for n, entry in enumerate(entries) if entry.point}
    timelines = list({id(entry.device): entry.device.timeline for entry in entries}.values())
    before: list[set[int]] = []
    for entry in entries:
        direct = {number[key] for p in entry.waits if (key := (id(p.timeline), p.value)) in number}
        direct |= {
            number[key] for timeline in timelines for when, thread, value in timeline.seen
            if thread == entry.thread and when < entry.begin and (key := (id(timeline), value)) in number
        }
        before.append(direct.union(*(before[earlier] for earlier in direct)))
    return [
        (a, b) for b in range(len(entries)) for a in range(b)
        if a not in before[b] and accesses[a].meets(accesses[b])
    ]


# -- not waiting forever -----------------------------------------------------------------------------


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` returns or raises; where it takes longer, TimeoutError with the stack of every thread."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # handed to whoever asked
            outcome.set_exception(error)

    threading.Thread(target=run, name="watched", daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            raise
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [
            f"-- {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
            for ident, frame in sys._current_frames().items()  # pyright: ignore[reportPrivateUsage]
        ]
        raise TimeoutError(f"not done after {seconds:g} seconds; threads:\n" + "\n".join(stacks)) from None
