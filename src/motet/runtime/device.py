"""The contract between the runtime and devices: the interface of drivers and devices.

A *driver* finds devices without opening them (`probe`) and opens them (`open`). It is an object or a module, registered
in the entry-point group `motet.drivers` under the name of its family. It is loaded when first needed; a driver that
cannot be loaded, or implements another version of this contract, is listed as unavailable with the reason.

A *device* has memory, loads code, and runs recorded work on queues. All ordering between pieces of work is expressed by
points on timelines (`timeline.py`). Every method may be called from several threads.

`python -m motet.runtime.conformance DRIVER` checks a driver against every sentence of this file.
"""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Literal, Protocol, cast

import numpy as np

from motet.artifact.places import rank_of, split_place
from motet.artifact.schema import Variant
from motet.artifact.uri import family_of, split_required, split_uri
from motet.errors import DeviceError
from motet.plug_ins import plug_ins
from motet.runtime.launching import how_to_launch
from motet.runtime.timeline import Point

API_VERSION = 1
GROUP = "motet.drivers"
# Motet's own drivers, which need no entry point.
BUILT_IN = {
    "host": "motet.runtime.drivers.host.driver",
    "null": "motet.runtime.drivers.null",
    "cuda": "motet.runtime.drivers.cuda.driver",
    "opencl": "motet.runtime.drivers.opencl.driver",
    "embedded": "motet.runtime.drivers.embedded.driver",
    "riscv": "motet.runtime.drivers.riscv.driver",
}


@dataclass(frozen=True)
class DeviceInfo:
    """A device, or one that could be present: `available` is then False, and `reason` tells why.

    `uri` names it to `load` (`host`, `cuda:0`, `riscv:qemu`); `family` is what its code is compiled for; `ordinal` is
    its number among the available devices of that family; `uuid` is a name independent of numbering. `cores` are the
    cores available to this process, `threads` the default number of threads; `level` is the highest CPU level of code
    that it runs (`x86-64-v4`); `memory` is in bytes. `aliases` are other names, which several devices may share:
    `opencl:intel` for the alias `intel`. `host_memory`: it works on host memory in place. `instances`: any number of
    devices can be opened on it: `host/1` is another one next to `host`. `instruction` is the seconds of an instruction,
    on an open device whose clock counts them, else 0. `rank` is the process of a run over several that opens it; its
    URI then begins with `rank:N/`. A device that lacks a description is given one by any of the options `described_by`
    in its name: `riscv:hw?gdb=HOST:PORT`. `is_modelled`: it stands for no hardware.
    """

    name: str
    uri: str
    cores: int = 0
    threads: int = 0
    level: str = ""
    memory: int = 0
    available: bool = True
    reason: str = ""
    family: str = ""
    ordinal: int = 0
    uuid: str = ""
    aliases: tuple[str, ...] = ()
    host_memory: bool = False
    instances: bool = False
    instruction: float = 0.0
    rank: int = 0
    described_by: tuple[str, ...] = ()
    is_modelled: bool = False


class Buffer(Protocol):
    """Memory of one device. `address` is in the device's address space; the memory is freed with the object."""

    @property
    def bytes(self) -> int: ...

    @property
    def address(self) -> int: ...


class Executable(Protocol):
    """Code loaded on a device."""

    @property
    def kernels(self) -> Sequence[str]:
        """The symbols of kernels that can be launched."""
        ...


@dataclass(frozen=True)
class Reference:
    """`bytes` bytes from `offset` on of the `external`-th buffer of a submission."""

    external: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class Work:
    """One command of a command buffer: a launch of `kernel` over tasks `[0, tasks)`, or a copy from the first reference
    to the second one, of equal size, which moves ranges that overlap as memmove does or is a DeviceError. `after` are
    indices of commands that must end first; commands implied by others may be omitted. A device that orders work by
    streams may use `stream` and `waits` instead: streams run in order, and `waits` are commands of others to end first.

    A kernel is called as `void kernel(ptr buffers, ptr sizes, i64 begin, i64 end, ptr scratch)`: the addresses of
    `references`, the values of `sizes`, a range of tasks, and `scratch` bytes private to the thread.
    """

    op: Literal["launch", "copy"]
    references: tuple[Reference, ...]
    kernel: str = ""
    tasks: int = 1
    sizes: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    stream: int = 0
    waits: tuple[int, ...] = ()
    seconds: float = 0.0  # estimated time of one CPU thread; 0 if unknown
    source: str = ""  # the names in the source of what it computes, for profiles and errors

    @property
    def described(self) -> str:
        """The kernel, or `copy`, with the names of what it computes."""
        name = self.kernel or self.op
        return f"{name} ({self.source})" if self.source else name


class CommandBuffer(Protocol):
    """Work that is recorded once and submitted repeatedly, with other memory each time."""

    @property
    def externals(self) -> int:
        """The number of buffers of a submission."""
        ...


@dataclass(frozen=True)
class Piece:
    """The part of a command that one core or thread ran; seconds as in `Event`."""

    core: int
    begin: float
    end: float


@dataclass(frozen=True)
class Event:
    """One operation of a device; times in seconds of this process's `time.perf_counter`. `kind` is launch, copy, read,
    write or fill; `bytes` is 0 for launches; `instructions` is 0 if the device does not count them. Events of one queue
    may overlap if the device runs several commands at the same time; `pieces` are the parts of its cores, if it reports
    them. `source` is that of the work."""

    name: str
    kind: str
    queue: int
    begin: float
    end: float
    bytes: int = 0
    instructions: int = 0
    pieces: tuple[Piece, ...] = ()
    source: str = ""


class Device(Protocol):
    """An open device. Work of one queue starts in the order of submission; work of different queues is ordered by
    points only. Arguments are checked, and `DeviceError` raised, before work is queued; a later failure poisons the
    returned point. Submitted work keeps its buffers, arrays and code alive until it has ended.

    Errors: `OutOfMemoryError` for memory; `KernelFault` for a kernel that faulted, which states whether the device is
    still usable; `DeviceLost` for a device that is permanently unusable.
    """

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def queues(self) -> int:
        """The number of queues, at least 1."""
        ...

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> Buffer:
        """Allocate `size` bytes (0 is allowed), uninitialised, aligned to 64."""
        ...

    def adopt(self, array: np.ndarray[Any, Any]) -> Buffer | None:
        """A contiguous host array as a buffer of this device, without a copy; None if that is not possible. The buffer
        keeps the array alive; writes of the device are visible in the array."""
        ...

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """The buffer's bytes (`u8`) if the host can address them in place, else None. The caller must wait for the
        points of work that reads or writes the buffer."""
        ...

    def write(
        self, target: Buffer, source: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        """Host to device: copy the contiguous `source` to byte `offset` of `target`. `source` must not change until the
        point is reached. A device that transfers many arrays at once more cheaply may have a method
        `place(arrays: Sequence[ndarray]) -> tuple[Sequence[Buffer], Point]`: memory for each contiguous array, with its
        content when the point is reached."""
        ...

    def read(
        self, source: Buffer, target: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        """Device to host: copy from byte `offset` of `source` into the contiguous, writable `target`."""
        ...

    def copy(self, source: Buffer, target: Buffer, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        """Within this device: copy all of `source` to the beginning of `target`. A device with a method
        `copies_from(other: Device) -> bool` also accepts a `source` of each other device for which it returns True."""
        ...

    def fill(self, target: Buffer, byte: int, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        """Set every byte of `target`."""
        ...

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        """Why this device cannot run a variant of an artifact; None if it can."""
        ...

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Executable:
        """Load relocatable objects (or the output of the family's compiler); `names` are for errors. A device with a
        vendor library that may replace kernels (`artifact/library.py`) has a method `algorithms(call: LibraryCall,
        most: int) -> list[Algorithm]`, and its executables have `notes`, which list the kernels that run
        nevertheless. A device whose platform compiles the code, and may fail at it, has `compile_faults:
        Sequence[str]`, what the compiler failed at so far; it is offered the artifact's further variants then."""
        ...

    def record(
        self, executable: Executable, work: Sequence[Work], externals: int, scratch: int
    ) -> CommandBuffer:
        """Record commands as one piece of work; `scratch` is in bytes per thread."""
        ...

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        """Run `work` on `buffers`, one for each external, once all points of `waits` (of any device) are reached; if
        one of them is poisoned, the returned point is poisoned, too. Returns immediately if the device can."""
        ...

    # -- lifetime --------------------------------------------------------------------------------

    def abort(self) -> None:
        """End running and queued work; its points are poisoned with `DeviceError`."""
        ...

    def profile(self, on: bool) -> list[Event]:
        """The events recorded since profiling was switched on, which are cleared; `on` switches profiling."""
        ...

    def close(self) -> None:
        """Wait for submitted work and release all resources; may be called again."""
        ...


class Driver(Protocol):
    """The object named by an entry point of `motet.drivers`. `api` is the `API_VERSION` that it implements.

    It may also define what the conformance suite must know of its devices, `conformance_exempt` and others, which
    `docs/devices.md` lists.
    """

    api: int

    def probe(self) -> Sequence[DeviceInfo]:
        """The devices that are, or could be, present. Must not open a device, process or file in a way that another
        program could notice."""
        ...

    def open(self, info: DeviceInfo) -> Device:
        """Open a device that `probe` returned; its `uri` may now end in options (`?key=value&…`, see `uri.py`). Raises
        DeviceError."""
        ...


def devices() -> list[DeviceInfo]:
    """All devices of this machine known to a driver, the host first."""
    return [info for name in driver_names() for info in probe(name)]


def driver_names() -> list[str]:
    """The families with a driver, the host first."""
    return ["host", *sorted(_entries().keys() - {"host"})]


def is_family(name: str) -> bool:
    """Whether there is a driver of this name."""
    return name in BUILT_IN or name in _entries()


def probe(family: str) -> list[DeviceInfo]:
    """The devices of one family; a driver that fails is listed as one unavailable device with the reason."""
    if not is_family(family):
        return [DeviceInfo(family, family, available=False, reason="there is no driver for it", family=family)]
    try:
        found: list[object] = list(load_driver(family).probe())
    except (Exception, SystemExit) as error:  # a plug-in may fail in any way, which must not affect the others
        reason = str(error) if isinstance(error, DeviceError) else f"{type(error).__name__}: {error}"
        return [DeviceInfo(family, family, available=False, reason=reason, family=family)]
    return [info if isinstance(info, DeviceInfo) else _no_info(family, info) for info in found]


def _no_info(family: str, found: object) -> DeviceInfo:
    reason = f"its driver describes it by an object of type {type(found).__name__}; expected DeviceInfo"
    return DeviceInfo(family, family, available=False, reason=reason, family=family)


# What is meant by names that other libraries give devices.
_MEANT = {
    "cpu": "the processor is host", "gpu": "a GPU is cuda:0, hip:0, opencl:0 or intel:0", "cuda:gpu": "write cuda:0",
}


def find_device(uri: str, present: Sequence[DeviceInfo] | None = None) -> DeviceInfo:
    """The device named by a URI, which may have options after a question mark: `cuda:0`, `null?latency=1e-3`.

    `cuda:GPU-…` and `GPU-…` name a device by its UUID, `cuda` alone is the first of the family, `opencl:intel` the
    first with the alias `intel`, or else with this in its name; `cuda://GPU-…` and `cuda://0` are IREE's spellings.
    `present` are the candidates, by default the devices that the family's driver
    finds. Raises DeviceError, which lists the present devices.
    """
    if (local := _local(uri, present or ())) is not None:
        return find_device(local, present)
    uri, _ = split_required(uri)
    written, options = split_uri(uri)
    base = written.replace("://", ":", 1)
    if present is None:
        family = family_of(base)
        present = probe(family) if family in driver_names() else devices()
    named = [info for info in present if base == info.uri]
    named += [info for info in present if info.uuid and base in (info.uuid, f"{info.family}:{info.uuid}")]
    named += [found for info in present if (found := numbered_instance(info, base)) is not None]
    named += sorted((info for info in present if base == info.family), key=lambda info: not info.available)
    named += [] if named else _by_name(base, present)
    named += [] if named else _why_none(base, present)
    if not named:
        here = ", ".join(_with_uuid(info) for info in present if info.available) or "none"
        meant = f"; {_MEANT[base]}" if base in _MEANT else ""
        raise DeviceError(f"device {uri}: it is not present{meant}; present: {here}")
    info = named[0]
    if not info.available and options.keys().isdisjoint(info.described_by):
        raise DeviceError(f"device {uri}: not available: {info.reason}")
    return replace(info, uri=info.uri + uri[len(written) :], available=True, reason="")


def _why_none(base: str, present: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """What says why there are no devices of the family in `base`; none if there are some."""
    family = [info for info in present if info.family == base.partition(":")[0]]
    return family if not any(info.available for info in family) else []


def _local(uri: str, present: Sequence[DeviceInfo]) -> str | None:
    """The name without its place, in a process that is the only rank; None for names without one, and over several
    ranks, whose devices have names with theirs. Raises DeviceError for places that are not this process."""
    place, local = split_place(uri)
    if not place or place in BUILT_IN or any(split_place(info.uri)[0] for info in present):
        return None
    if place in ("rank:0", platform.node()):
        return local
    raise DeviceError(f"device {uri}: {place} is not there: this is the only process; "
                      f"{how_to_launch((rank_of(place) or 1) + 1)}")


def _by_name(base: str, present: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """The devices that a URI names by an alias, or else by a part of their name; without case."""
    family, _, text = base.partition(":")
    alike = [info for info in present if info.family == family and info.aliases]
    alike.sort(key=lambda info: not info.available)
    wanted = text.lower()
    if not wanted or wanted.isdecimal():
        return []
    exact = [info for info in alike if wanted in (alias.lower() for alias in info.aliases)]
    return exact or [info for info in alike if wanted in info.name.lower()]


def _with_uuid(info: DeviceInfo) -> str:
    names = ", ".join([*([info.uuid] if info.uuid else []), *info.aliases])
    return f"{info.uri} ({names})" if names else info.uri


def numbered_instance(info: DeviceInfo, uri: str) -> DeviceInfo | None:
    """`host/2`: a further instance of `info`, if it allows any number."""
    match = re.fullmatch(re.escape(info.uri) + r"/(\d{1,6})", uri)
    if match is None or not info.instances:
        return None
    return replace(info, uri=uri, ordinal=int(match[1]))


def load_driver(family: str) -> Driver:
    """The driver of a family. Raises DeviceError if there is none, or it has another version."""
    own = BUILT_IN.get(family)  # plug-ins cannot replace it, so that none is loaded for it
    entry = metadata.EntryPoint(family, own, GROUP) if own is not None else _entries().get(family)
    if entry is None:
        raise DeviceError(f"device {family}: no driver of that name; there are: {', '.join(driver_names())}")
    try:
        driver = cast(Driver, entry.load())
    except (Exception, SystemExit) as error:  # importing a plug-in runs its code
        raise DeviceError(f"driver {entry.value!r}: {type(error).__name__}: {error}") from error
    version = getattr(driver, "api", None)
    if version != API_VERSION:
        raise DeviceError(
            f"driver {entry.value!r}: written for version {version} of the device interface; expected {API_VERSION}"
        )
    return driver


def open_device(info: DeviceInfo) -> Device:
    """Open a probed device. Any exception of the driver becomes a DeviceError."""
    if not info.available:
        raise DeviceError(f"device {info.uri}: not available: {info.reason}")
    driver = load_driver(info.family)
    try:
        return driver.open(info)
    except DeviceError:
        raise
    except Exception as error:  # raised by a plug-in
        raise DeviceError(f"device {info.uri}: cannot be opened: {type(error).__name__}: {error}") from error


def obstacle_of(info: DeviceInfo, variant: Variant) -> str | None:
    """Why a probed device cannot run a variant, which only the open device tells: an OpenCL platform takes SPIR-V or
    not. None if it can, or cannot be opened."""
    try:
        with contextlib.closing(open_device(info)) as device:
            return device.obstacle(variant)
    except DeviceError:
        return None


def _entries() -> dict[str, metadata.EntryPoint]:
    return {**plug_ins(GROUP)} | {name: metadata.EntryPoint(name, module, GROUP) for name, module in BUILT_IN.items()}
