"""The options of an accelerator, `riscv:qemu?harts=4&memory=512M`: its properties, and how it is reached.

The variables MOTET_RISCV_QEMU, MOTET_RISCV_ISS and MOTET_RISCV_HW hold options in the same syntax (`harts=2&guard=1`)
for every device of that platform; options in the name take precedence, and a stub or window there replaces the other.
`riscv:hw` is present only if MOTET_RISCV_HW describes it, or its name does. `riscv:iss` is `riscv:qemu` with `count=1`;
options marked qemu below apply to it, too.

    harts=2             cores
    memory=512M         bytes of its memory
    arch=rv64gcv128     the instruction set of its cores, by the names of the compiler's targets
    vlen=256            the same, only by the bits of their vector registers; 0: none
    guard=1             kernels can access only the memory of their launch; other accesses are faults
    timeout=600         seconds that a wave of launches may take; 0: unlimited
    answer=5            seconds after which an unresponsive device is lost: an emulator whose process is stopped,
                        or a device that was told to end its work and has not
    spin=200            microseconds that idle cores poll for work before they sleep; inf: they never sleep
    boot=30             seconds that the firmware may take to start
    firmware=FILE       an image to start instead of Motet's own
    verbose=1           reports on standard error how the device was started, and how it ended
    count=1             (qemu) counts the instructions of kernels, exactly; needs harts=1
    folder=FOLDER       (qemu) a folder for each device's files: memory, command line, log, trace
    trace=in_asm+int    (qemu) the emulator's output to FOLDER's trace.log: items of its option -d
    window=FILE         (hw) a file or character device whose bytes are the device's memory, coherent with it
    offset=0x80000000   (hw) the memory's offset in that file
    bell=FILE           (hw) its serial line, on which a byte wakes it; without one it is polled, and must not sleep
    gdb=HOST:PORT       (hw) instead of a window: the GDB stub through which the memory is reached, or the path of its
                        Unix socket or serial port
    baud=115200         (hw) the speed of that port
    install=1           (hw) writes the firmware and waits until the cores are started
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from motet.errors import DeviceError
from motet.runtime.drivers.common import options as kinds
from motet.runtime.drivers.riscv import protocol

MOST_MEMORY = 1 << 40
SCALAR = "rv64gc"
VECTOR_BITS = (128, 256, 512, 1024)
ARCHITECTURES = (SCALAR, *(f"{SCALAR}v{bits}" for bits in VECTOR_BITS))
VARIABLES = {"qemu": "MOTET_RISCV_QEMU", "iss": "MOTET_RISCV_ISS", "hw": "MOTET_RISCV_HW"}

_SCALAR_FEATURES = frozenset({"i", "m", "a", "f", "d", "c", "zicsr", "zifencei"})
_VECTOR_FEATURES = frozenset({"v", "zve32x", "zve32f", "zve64x", "zve64f", "zve64d"})


@dataclass(frozen=True)
class RiscvOptions:
    """See the module's documentation; times are in seconds."""

    harts: int = 2
    memory: int = 512 << 20
    arch: str = "rv64gcv128"  # longer vectors put QEMU on x86 into a state in which its arithmetic is slow
    guard: bool = False
    timeout: float = 600.0
    answer: float = 5.0
    spin: float = 200e-6
    boot: float = 30.0
    firmware: Path | None = None
    verbose: bool = False
    count: bool = False
    folder: Path | None = None
    trace: str = ""
    window: Path | None = None
    offset: int = 0
    bell: Path | None = None
    gdb: str = ""
    baud: int = 115200
    install: bool = False

    @property
    def vector_bits(self) -> int:
        """The bits of a vector register; 0 if there are none."""
        return int(self.arch.removeprefix(f"{SCALAR}v")) if self.arch != SCALAR else 0

    @property
    def features(self) -> frozenset[str]:
        """The features of its cores, in LLVM's spelling."""
        if not self.vector_bits:
            return _SCALAR_FEATURES
        lengths = {f"zvl{1 << bits}b" for bits in range(5, self.vector_bits.bit_length())}
        return _SCALAR_FEATURES | _VECTOR_FEATURES | lengths


def parse(uri: str, environment: Mapping[str, str] = os.environ) -> RiscvOptions:
    """The options in a device's name, with those of the environment. Raises DeviceError for an unknown option, one of
    another platform, or one out of range."""
    platform, sources = kinds.given_options(uri, VARIABLES, environment)
    (_, general), (_, given) = sources
    for name in (*(("window", "bell") if "gdb" in given else ()), *(("gdb",) if "window" in given else ())):
        general.pop(name, None)
    options = RiscvOptions(harts=max(1, min(4, len(os.sched_getaffinity(0)))))
    if platform == "iss" or (general | given).get("count") == "1":
        options = replace(options, harts=1, count=True)
    for where, pairs in sources:
        for name, value in pairs.items():
            options = _with(options, platform, name, value, where)
    if platform == "iss" and not options.count:
        raise DeviceError(f"device {uri}: count=0; expected count=1, which a simulator is for, or riscv:qemu")
    _check(options, f"device {uri}")
    return options


def _with(options: RiscvOptions, platform: str, name: str, value: str, where: str) -> RiscvOptions:
    if name == "vlen":
        name, value = "arch", SCALAR if value == "0" else f"{SCALAR}v{value}"
    own = "qemu" if platform == "iss" else platform
    return replace(options, **{name: kinds.parse_option(_PARSERS, own, name, value, where)})


def _check(options: RiscvOptions, where: str) -> None:
    least = (32 << 20) + options.harts * (1 << 20)
    if options.memory < least:
        raise DeviceError(
            f"{where}: memory of {options.memory:,} bytes; expected at least {least:,} for {options.harts} harts"
        )
    if options.count and options.harts != 1:
        raise DeviceError(f"{where}: count=1 with harts={options.harts}; instructions are counted with harts=1 alone")
    if options.gdb and (options.window or options.bell):
        raise DeviceError(f"{where}: gdb={options.gdb} with a window or a bell; expected one way to its memory")
    if options.trace and options.folder is None:
        raise DeviceError(f"{where}: trace={options.trace} without a folder; expected folder=FOLDER to write it to")


def _harts(text: str) -> int | None:
    return value if 1 <= (value := int(text)) <= protocol.MOST_HARTS else None


def _memory(text: str) -> int | None:
    size = kinds.parse_bytes(text, "KMG")
    return size if size and size % (1 << 20) == 0 and size <= MOST_MEMORY else None


def _microseconds(text: str) -> float | None:
    value = float(text)
    return value / 1e6 if 0 <= value <= 4e8 or value == math.inf else None


def _offset(text: str) -> int | None:
    return value if (value := int(text, 0)) >= 0 and value % 4096 == 0 else None


def _items(text: str) -> str | None:
    return text if re.fullmatch(r"[a-z0-9_]+(\+[a-z0-9_]+)*", text) else None


_PARSERS: dict[str, kinds.OptionParser] = {
    "harts": (_harts, f"a number of cores from 1 to {protocol.MOST_HARTS}", ""),
    "memory": (_memory, "bytes, a multiple of 1M, as in 512M or 2G", ""),
    "arch": kinds.one_of(ARCHITECTURES),
    "guard": kinds.switch(),
    "timeout": kinds.seconds(1e9, "seconds, 0 for any"),
    "answer": kinds.seconds(1e9),
    "spin": (_microseconds, "microseconds, or inf", ""),
    "boot": kinds.seconds(1e9),
    "firmware": kinds.given(Path, "a file"),
    "verbose": kinds.switch(),
    "count": kinds.switch("qemu"),
    "folder": kinds.given(Path, "a folder", "qemu"),
    "trace": (_items, "items of the emulator's option -d, joined by +", "qemu"),
    "window": kinds.given(Path, "a file", "hw"),
    "offset": (_offset, "bytes, a multiple of 4096", "hw"),
    "bell": kinds.given(Path, "a file", "hw"),
    "gdb": kinds.given(str, kinds.STUB, "hw"),
    "baud": kinds.baud("hw"),
    "install": kinds.switch("hw"),
}
