"""Work recorded for native code in this process, shared by the host and devices that run host code."""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.schema import Variant
from motet.cpu_features import allow, host_features, machine
from motet.errors import ArtifactError, DeviceError
from motet.runtime.device import Event, Piece, Work
from motet.runtime.drivers.common.recording import check_work
from motet.runtime.drivers.host.loader import NativeCode, load_objects
from motet.runtime.drivers.host.native import NativeCommand, NativeProgram
from motet.runtime.drivers.host.threads import HostThreads


class NativeExecutable:
    """Loaded objects whose global symbols are kernels."""

    def __init__(self, code: NativeCode) -> None:
        self.code = code

    @property
    def kernels(self) -> Sequence[str]:
        return self.code.names


class NativeCommandBuffer:
    """A native program; `needed` is the required bytes of each external."""

    __slots__ = ("externals", "needed", "program", "work")

    def __init__(self, program: NativeProgram, work: tuple[Work, ...], needed: tuple[int, ...]) -> None:
        self.program = program
        self.work = work
        self.needed = needed
        self.externals = len(needed)


def load_native(device: str, objects: Sequence[bytes], names: Sequence[str]) -> NativeExecutable:
    """Load objects for this CPU. Raises DeviceError if they cannot be loaded."""
    try:
        return NativeExecutable(load_objects(objects, {}, names))
    except ArtifactError as error:
        raise DeviceError(f"device {device}: {error}") from error


def record_native(
    device: str, executable: NativeExecutable, work: Sequence[Work], externals: int, scratch: int, threads: HostThreads
) -> NativeCommandBuffer:
    """Record commands as one native program that runs on `threads`. Raises DeviceError for invalid commands."""
    code = executable.code
    needed = check_work(device, work, code.names, externals)
    commands = [_native(item, code) for item in work]
    program = NativeProgram(threads, commands, externals, scratch, code, [item.after for item in work])
    return NativeCommandBuffer(program, tuple(work), needed)


def note_events(work: Sequence[Work], pieces: Sequence[Sequence[Piece]], queue: int, begin: float) -> list[Event]:
    """The events of commands, of which threads ran `pieces`; a command without pieces ends with the commands before it,
    or at `begin`."""
    events: list[Event] = []
    for item, own in zip(work, pieces, strict=True):
        size = item.references[0].bytes if item.op == "copy" else 0
        first = min((piece.begin for piece in own), default=begin)
        last = max((piece.end for piece in own), default=begin)
        begin = max(begin, last)
        events.append(Event(
            item.kernel or item.op, item.op, queue, first, last, size, pieces=tuple(own), source=item.source
        ))
    return events


def _native(item: Work, code: NativeCode) -> NativeCommand:
    references = tuple((reference.external, reference.offset) for reference in item.references)
    if item.op == "copy":
        return NativeCommand(0, 0, references, (), item.references[0].bytes, item.seconds)
    return NativeCommand(code.address(item.kernel), item.tasks, references, item.sizes, 0, item.seconds)


def processor_obstacle(variant: Variant) -> str | None:
    """Why this machine's CPU cannot run the code of a variant; None if it can."""
    if (needed := variant.triple.split("-")[0]) != machine():
        return f"for {needed}"
    features = host_features()
    missing = [feature for feature in variant.features if feature not in features]
    if missing:
        return f"needs {', '.join(missing)}, which the processor lacks"
    return None if allow(variant.features) else "needs amx, which the operating system refuses"
