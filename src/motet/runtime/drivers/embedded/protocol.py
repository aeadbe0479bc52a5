"""The structures that the host and the agent, the program on an embedded device, exchange; see `firmware/agent.c`.

`python protocol.py` prints them as a C header. Everything is little-endian; addresses have 64 bits on every processor.
The image contains a digest of this description, so that a host never works with an agent of another version.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import numpy as np

RANGES = 4  # of memory for code and data
PAYLOAD = 1024  # most bytes of a frame
REQUEST, ANSWER, ABORT = 0xA5, 0x5A, 0x18  # the first bytes of frames; a byte that ends running work


class AgentOp(IntEnum):
    LAUNCH = 1
    COPY = 2
    FILL = 3


class AgentStatus(IntEnum):
    NONE = 0
    RUNNING = 1
    OK = 2
    FAULT = 3
    TIMEOUT = 4
    ABORTED = 5
    PANIC = 6  # a fault outside kernels


class LineFrame(IntEnum):
    """A frame on a serial line: its first byte, one of these, address (u64), size (u32), `size` bytes unless it is a
    read, and the CRC-32 of all but the first byte. A frame with a wrong checksum is answered by REJECTED."""

    READ = 1
    WRITE = 2
    RUN = 3
    IDENTIFY = 4
    REJECTED = 5


def _structure(*fields: tuple[str, str]) -> np.dtype[np.void]:
    return np.dtype([(name, f"<{kind}") for name, kind in fields])


# A constant of the image: `heap` are the ranges of memory, including the image: `clock` is in ticks per second.
BOARD_TYPE = np.dtype([("digest", "<u4"), ("pointer_bytes", "<u4"), ("clock", "<u8"), ("heap", "<u8", (RANGES, 2))])
# `ticks` are of the device's clock; `instructions` is 0 where the processor does not count them.
COMMAND_TYPE = _structure(
    ("op", "u4"), ("tasks", "u4"), ("entry", "u8"), ("buffers", "u8"), ("sizes", "u8"), ("scratch", "u8"),
    ("bytes", "u8"), ("ticks", "u8"), ("instructions", "u8"),
)
# The host sets `commands`, `count`, `limit` (ticks; 0: none), then `request`; the device clears it at the end.
MAILBOX_TYPE = _structure(
    ("digest", "u4"), ("request", "u4"), ("commands", "u8"), ("limit", "u8"), ("count", "u4"), ("abort", "u4"),
    ("status", "u4"), ("command", "u4"), ("completed", "u4"), ("reserved", "u4"),
    ("cause", "u8"), ("pc", "u8"), ("value", "u8"),
)


def header() -> str:
    """The C header of this module."""
    lines = ["/* Made from protocol.py. */", "#include <stdint.h>"]
    lines += [f"#define {name} {value}" for name, value in _constants().items()]
    for name, dtype in _TYPES.items():
        lines += [f"struct {name} {{", *(f"    {_c_field(dtype, field)};" for field in dtype.names or ()), "};"]
        lines.append(f'_Static_assert(sizeof(struct {name}) == {dtype.itemsize}, "{name}");')
    return "\n".join([*lines, ""])


def _constants() -> dict[str, int]:
    groups: dict[str, type[IntEnum]] = {"OP": AgentOp, "STATUS": AgentStatus, "FRAME": LineFrame}
    members = {f"{prefix}_{item.name}": int(item) for prefix, group in groups.items() for item in group}
    return members | {
        "RANGES": RANGES, "PAYLOAD": PAYLOAD, "FRAME_REQUEST": REQUEST, "FRAME_ANSWER": ANSWER, "ABORT_BYTE": ABORT,
        "DIGEST": DIGEST,
    }


def _c_field(dtype: np.dtype[np.void], field: str) -> str:
    kind = dtype[field]
    counts = "".join(f"[{count}]" for count in kind.shape)
    return f"uint{8 * kind.base.itemsize}_t {field}{counts}"


_TYPES = {"board": BOARD_TYPE, "command": COMMAND_TYPE, "mailbox": MAILBOX_TYPE}
_NUMBERS = [[(item.name, int(item)) for item in group] for group in (AgentOp, AgentStatus, LineFrame)]
_TEXT = [(name, dtype.descr) for name, dtype in _TYPES.items()], _NUMBERS, RANGES, PAYLOAD, REQUEST, ANSWER, ABORT
DIGEST = zlib.crc32(repr(_TEXT).encode())

if __name__ == "__main__":
    print(header(), end="")
