"""The contract between the runtime and the devices: what a driver and a device must offer.

A *driver* finds devices without touching them (`probe`) and opens them (`open`). It is an object, a module will
do, named in the entry-point group `motet.drivers`, under the name of its family; it is loaded when first needed,
and one that cannot be loaded, or speaks another version of this contract, is shown as unavailable with its reason.

A *device* has memory, takes code and runs recorded work on queues. Every order between two pieces of work is
a point on a timeline (`timeline.py`). Everything here may be called from several threads.

`python -m motet.runtime.conformance DRIVER` puts a driver through every sentence of this file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Literal, Protocol, cast

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime.timeline import Point
from motet.runtime.uri import family_of, split_uri

API_VERSION = 1
GROUP = "motet.drivers"
# Those of Motet itself, which need no entry point.
BUILT_IN = {
    "host": "motet.runtime.drivers.host.driver",
    "null": "motet.runtime.drivers.null",
    "cuda": "motet.runtime.drivers.cuda.driver",
    "riscv": "motet.runtime.drivers.riscv.driver",
}


@dataclass(frozen=True)
class DeviceInfo:
    """A device, or one that could be here: then `available` is False and `reason` says why it is not.

    `uri` names it to `load` (`host`, `cuda:0`, `riscv:qemu`); `family` is what its code is compiled for, `ordinal`
    its number among the available devices of that family, `uuid` a name that survives renumbering, where it has
    one. `cores` are those it has for us, `threads` those used by default; `level` is what its code may need
    (`x86-64-v4`); `memory` is in bytes; `host_memory` says that it works on the host's memory in place, so that
    nothing is copied to or from it; `instances`, that any number of devices can be opened on it: `host/1` is another
    one beside `host`.
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
    host_memory: bool = False
    instances: bool = False


class Buffer(Protocol):
    """Memory of one device. `address` is the device's own; the memory is freed when the object is gone."""

    @property
    def bytes(self) -> int: ...

    @property
    def address(self) -> int: ...


class Executable(Protocol):
    """Code on a device."""

    @property
    def kernels(self) -> Sequence[str]:
        """The symbols that can be launched."""
        ...


@dataclass(frozen=True)
class Reference:
    """`bytes` bytes from `offset` on in the `external`-th buffer that a submission is given."""

    external: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class Work:
    """One command of a command buffer: a launch of `kernel` over tasks `[0, tasks)`, or a copy from the first
    reference to the second, of equal sizes. `after` are the indices of the commands it needs to have ended: all,
    or so many that the others follow. A device that orders work by streams may use `stream` and `waits` instead: each
    stream runs its commands in their order, and `waits` are those of other streams that this one needs to have ended.

    A kernel is called as `void kernel(ptr buffers, ptr sizes, i64 begin, i64 end, ptr scratch)`: the addresses
    of `references`, the values of `sizes`, a range of tasks, and `scratch` bytes of its thread's own.
    """

    op: Literal["launch", "copy"]
    references: tuple[Reference, ...]
    kernel: str = ""
    tasks: int = 1
    sizes: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    stream: int = 0
    waits: tuple[int, ...] = ()
    seconds: float = 0.0  # that one thread of a processor may take, roughly; 0 where nobody can tell


class CommandBuffer(Protocol):
    """Work recorded once, submitted many times, on other memory each time."""

    @property
    def externals(self) -> int:
        """How many buffers a submission takes."""
        ...


@dataclass(frozen=True)
class Piece:
    """What one core, or thread, did of a command: seconds as in `Event`."""

    core: int
    begin: float
    end: float


@dataclass(frozen=True)
class Event:
    """What a device did: seconds of this process's `time.perf_counter`. `kind` is launch, copy, read, write or
    fill; `bytes` is 0 where nothing is moved, `instructions` where the device does not count them. Events of one queue
    may overlap where the device does several commands at once; `pieces` are what each of its cores did, where it
    tells."""

    name: str
    kind: str
    queue: int
    begin: float
    end: float
    bytes: int = 0
    instructions: int = 0
    pieces: tuple[Piece, ...] = ()


class Device(Protocol):
    """An open device. Work of one queue begins in the order of its submission; work of different queues is
    ordered by points alone. Arguments are checked, and `DeviceError` raised, before anything is queued; what
    fails later poisons the point that was returned. What was submitted holds the buffers, arrays and code that it
    works with until it has ended.

    Errors: `OutOfMemoryError` for memory; `KernelFault` for a kernel that went wrong, with the device usable
    afterwards if it says so; `DeviceLost` for a device that is gone for good.
    """

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def queues(self) -> int:
        """How many queues there are, at least 1."""
        ...

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> Buffer:
        """`size` bytes (0 is allowed), not cleared, aligned to 64."""
        ...

    def adopt(self, array: np.ndarray[Any, Any]) -> Buffer | None:
        """A contiguous host array as a buffer of this device, without a copy; None where that cannot be. The
        buffer keeps the array alive; what the device writes into it is seen in the array."""
        ...

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """The buffer's bytes (`u8`) where the host can address them in place, else None. Whoever uses it
        waits for the points of what reads and writes the buffer."""
        ...

    def write(
        self, target: Buffer, source: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        """Host to device: the contiguous `source` to byte `offset` of `target`. `source` must stay unchanged
        until the point is reached. A device for which many arrays together are less work may have a method
        `place(arrays: Sequence[ndarray]) -> tuple[Sequence[Buffer], Point]`: memory for each contiguous array, with its
        content when the point is reached."""
        ...

    def read(
        self, source: Buffer, target: np.ndarray[Any, Any], offset: int = 0, waits: Sequence[Point] = (),
        queue: int = 0,
    ) -> Point:
        """Device to host: into the contiguous, writable `target` from byte `offset` of `source` on."""
        ...

    def copy(self, source: Buffer, target: Buffer, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        """Within this device: all of `source` to the beginning of `target`. A device that has a method
        `copies_from(other: Device) -> bool` takes `source` from each other device for which that is true."""
        ...

    def fill(self, target: Buffer, byte: int, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        """Sets every byte of `target`."""
        ...

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        """Why this device cannot run a variant of an artifact; None if it can."""
        ...

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Executable:
        """Relocatable objects (or what the family's compiler makes), ready to launch; `names` are for errors. A device
        that has a library that may take the place of kernels (`artifact/library.py`) has a method
        `algorithms(call: LibraryCall, most: int) -> list[Algorithm]`, and its executables `notes`, which say which
        kernels run all the same."""
        ...

    def record(
        self, executable: Executable, work: Sequence[Work], externals: int, scratch: int
    ) -> CommandBuffer:
        """Commands as one piece of work; `scratch` is bytes per thread."""
        ...

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        """Runs `work` on `buffers`, one for each external, once every point of `waits` (of any device) is
        reached; if one is poisoned, so is the point returned. Returns at once where the device can."""
        ...

    # -- its life --------------------------------------------------------------------------------

    def abort(self) -> None:
        """Ends what is running and queued; their points are poisoned with `DeviceError`."""
        ...

    def profile(self, on: bool) -> list[Event]:
        """The events recorded since profiling was switched on, which are then forgotten; `on` switches it."""
        ...

    def close(self) -> None:
        """Waits for what was submitted and gives everything back; closing twice is allowed."""
        ...


class Driver(Protocol):
    """What an entry point of `motet.drivers` names. `api` is the `API_VERSION` it was written for.

    It may also have `conformance_exempt`, a mapping of checks of the conformance suite to reasons why they cannot be
    made of its devices, and `conformance_in_processes`, the checks that leave the process unable to use them.
    """

    api: int

    def probe(self) -> Sequence[DeviceInfo]:
        """The devices that are, or could be, here. Touches nothing: no device, process or file is opened that
        another program could notice."""
        ...

    def open(self, info: DeviceInfo) -> Device:
        """Opens a device that `probe` returned; its `uri` may now end in options, which the driver reads
        (`?key=value&…`, see `uri.py`). Raises DeviceError."""
        ...


def devices() -> list[DeviceInfo]:
    """Every device of this machine that a driver knows of, the host first."""
    return [info for name in driver_names() for info in probe(name)]


def driver_names() -> list[str]:
    """The families that have a driver, the host first."""
    return ["host", *sorted(_entries().keys() - {"host"})]


def is_family(name: str) -> bool:
    """Whether there is a driver of this name."""
    return name in BUILT_IN or name in _entries()


def probe(family: str) -> list[DeviceInfo]:
    """The devices of one family; a driver that fails is one unavailable device that says why."""
    if not is_family(family):
        return [DeviceInfo(family, family, available=False, reason="there is no driver for it", family=family)]
    try:
        found: list[object] = list(load_driver(family).probe())
    except (Exception, SystemExit) as error:  # a plug-in may fail in any way, and must not take the others along
        reason = str(error) if isinstance(error, DeviceError) else f"{type(error).__name__}: {error}"
        return [DeviceInfo(family, family, available=False, reason=reason, family=family)]
    return [info if isinstance(info, DeviceInfo) else _no_info(family, info) for info in found]


def _no_info(family: str, found: object) -> DeviceInfo:
    reason = f"its driver describes it by an object of type {type(found).__name__}; expected DeviceInfo"
    return DeviceInfo(family, family, available=False, reason=reason, family=family)


def find_device(uri: str, present: Sequence[DeviceInfo] | None = None) -> DeviceInfo:
    """The device that a URI names, options after a question mark included: `cuda:0`, `null?latency=1e-3`.

    `cuda:GPU-…` and `GPU-…` name a device by its UUID, `cuda` alone is the first of the family; `cuda://GPU-…` and
    `cuda://0` are IREE's spellings. `present` is where to look, by default what the family's driver finds. Raises
    DeviceError, which lists what is there.
    """
    written, _ = split_uri(uri)
    base = written.replace("://", ":", 1)
    if present is None:
        family = family_of(base)
        present = probe(family) if family in driver_names() else devices()
    named = [info for info in present if base == info.uri]
    named += [info for info in present if info.uuid and base in (info.uuid, f"{info.family}:{info.uuid}")]
    named += [found for info in present if (found := numbered_instance(info, base)) is not None]
    named += sorted((info for info in present if base == info.family), key=lambda info: not info.available)
    if not named:
        here = ", ".join(_with_uuid(info) for info in present if info.available) or "none"
        raise DeviceError(f"device {uri}: it is not present; present: {here}")
    info = named[0]
    if not info.available:
        raise DeviceError(f"device {uri}: not available: {info.reason}")
    return replace(info, uri=info.uri + uri[len(written) :])


def _with_uuid(info: DeviceInfo) -> str:
    return f"{info.uri} ({info.uuid})" if info.uuid else info.uri


def numbered_instance(info: DeviceInfo, uri: str) -> DeviceInfo | None:
    """`host/2`: one more device on what `info` describes, where there can be any number."""
    match = re.fullmatch(re.escape(info.uri) + r"/(\d{1,6})", uri)
    if match is None or not info.instances:
        return None
    return replace(info, uri=uri, ordinal=int(match[1]))


def load_driver(family: str) -> Driver:
    """The driver of a family. Raises DeviceError for one that is not there or not of this version."""
    own = BUILT_IN.get(family)  # which others do not replace, so that nobody has to be asked
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
    """Opens a device that was probed. Raises DeviceError, whatever the driver raised."""
    if not info.available:
        raise DeviceError(f"device {info.uri}: not available: {info.reason}")
    driver = load_driver(info.family)
    try:
        return driver.open(info)
    except DeviceError:
        raise
    except Exception as error:  # the driver is not ours
        raise DeviceError(f"device {info.uri}: cannot be opened: {type(error).__name__}: {error}") from error


def _entries() -> dict[str, metadata.EntryPoint]:
    found = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    return found | {name: metadata.EntryPoint(name, module, GROUP) for name, module in BUILT_IN.items()}
