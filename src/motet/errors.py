"""The errors for users: one class per kind, with fields that callers can match on.

The text of an error states: where · what · what was expected · what there is · what to do; in lower case, without a
full stop.
"""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST = 4000  # characters of a text: names and types in it may be of any length


def _in_one_line(message: str) -> str:
    """`message`, with characters that are not printable escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


@dataclass(frozen=True)
class Location:
    """A place in the user's input. `line` and `column` count from 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


class MotetError(Exception):
    """Base class of all errors that Motet raises for a mistake of the user or a limit of the machine. The middle of a
    text of more than some thousand characters is left out."""

    def __init__(self, text: str = "") -> None:
        if (more := len(text) - _LONGEST) > 0:
            text = f"{text[: _LONGEST // 2]} … ({more:,} characters more) … {text[-_LONGEST // 2 :]}"
        super().__init__(text)


class CompileError(MotetError):
    """A program that cannot be read, or cannot be compiled for the requested devices."""

    def __init__(self, message: str, location: Location | None = None) -> None:
        self.message = message
        self.location = location
        super().__init__(message if location is None else f"{location}: {message}")


class OptionError(MotetError):
    """A device expression, option, or input specification that does not parse or does not exist. Its text is one line,
    whatever was given."""

    def __init__(self, message: str) -> None:
        super().__init__(_in_one_line(message))


class ScheduleError(OptionError):
    """A schedule that does not apply to a kernel: `primitive` of `loop` is not legal because of `why`; `legal` tells
    what would be."""

    def __init__(self, primitive: str, loop: str, why: str, legal: str) -> None:
        self.primitive = primitive
        self.loop = loop
        self.why = why
        self.legal = legal
        super().__init__(f"schedule: {primitive} of {loop}: {why}; expected {legal}")


class ArtifactError(MotetError):
    """A file that is not an artifact, or one that is damaged, truncated, or of a newer version.

    Characters of its names that are not printable are escaped, so that the text is one line.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_in_one_line(message))


class DeviceError(MotetError):
    """A device that is not present, cannot run what is requested, or failed."""


class DeviceLost(DeviceError):
    """A device that is permanently unusable: its process died, it was unplugged, or it does not respond."""

    def __init__(self, device: str, reason: str) -> None:
        self.device = device
        self.reason = reason
        super().__init__(f"device {device}: lost: {reason}")


class RankFailure(DeviceError):
    """A call over several ranks that failed on `rank`, for all of them; `kind` is the class of the error there, and
    `reason` its text."""

    MISSING = "missing"  # the kind of ranks that do not answer

    def __init__(self, rank: int, reason: str, kind: str = "") -> None:
        self.rank = rank
        self.reason = reason
        self.kind = kind
        super().__init__(f"rank {rank}: {reason}")


class KernelFault(DeviceError):
    """A kernel stopped by a device. `symbol` is the place, as kernel+offset; -1 stands for unknown values; `usable`
    tells whether the device can continue."""

    # Parameters: what callers may match on, each a field.
    def __init__(
        self, device: str, kernel: str, reason: str, *, core: int = -1, pc: int = -1, symbol: str = "",
        address: int = -1, usable: bool = True,
    ) -> None:
        self.device = device
        self.kernel = kernel
        self.reason = reason
        self.core = core
        self.pc = pc
        self.symbol = symbol
        self.address = address
        self.usable = usable
        places = [
            f"core {core}" if core >= 0 else "",
            f"pc {pc:#x}" + (f" ({symbol})" if symbol else "") if pc >= 0 else "",
            f"address {address:#x}" if address >= 0 else "",
        ]
        where = ", ".join(filter(None, places))
        state = "" if usable else "; the device cannot be used any more"
        super().__init__(f"device {device}: kernel {kernel}: {reason}{f' at {where}' if where else ''}{state}")


class CallError(MotetError):
    """A call that does not match the function: count, shape, dtype, layout, writability, or name. Its text is one line,
    whatever the names of a model are."""

    def __init__(self, message: str) -> None:
        super().__init__(_in_one_line(message))


class WrongResults(MotetError):
    """Results of a kernel that differ from the oracle's."""


class OutOfMemoryError(MotetError):
    """An allocation that failed. `bytes` is the requested size, `device` the place."""

    def __init__(self, bytes: int, device: str) -> None:
        self.bytes = bytes
        self.device = device
        super().__init__(f"device {device}: not enough memory: {bytes:,} bytes asked for")


class WorkerCrash(MotetError):
    """A compiler worker process that died. `reproducer` is the command that reproduces the crash."""

    def __init__(self, message: str, reproducer: str) -> None:
        self.reproducer = reproducer
        super().__init__(f"{message}; reproduce with: {reproducer}")
