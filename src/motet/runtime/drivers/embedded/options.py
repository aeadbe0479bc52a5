"""The options of an embedded device, `embedded:qemu?machine=mps3-an547&count=1`.

The variables MOTET_EMBEDDED_QEMU, MOTET_EMBEDDED_GDB and MOTET_EMBEDDED_SERIAL hold options in the same syntax; options
in the name take precedence.

    machine=mps3-an547    the machine, of those in `machines.py`; its agent is the image
    image=FILE            another agent, built for a board
    cpu=cortex-m55        with image: the processor, by the names of the compiler's targets
    memory=256K           bytes of the machine's memory that programs and their data may use; default: all
    timeout=60            seconds that a launch may take; 0: unlimited
    answer=10             seconds without an answer after which the device is lost
    boot=20               seconds that the agent may take to start
    verbose=1             reports on standard error how the device was started
    link=gdb              (qemu) how it is reached: gdb or serial
    count=1               (qemu) counts instructions; the device's clock is then derived from them
    address=HOST:PORT     (gdb) the stub's address, or the path of its Unix socket or serial port
    flash=1               (gdb) writes the image to the device first, and starts it; 0: it runs already
    port=/dev/ttyUSB0     (serial) the line
    baud=115200           (gdb, serial) the line's speed
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from motet.errors import DeviceError
from motet.runtime.drivers.common import options as kinds
from motet.runtime.drivers.embedded.image import AgentImage, given_image, shipped_image
from motet.runtime.drivers.embedded.machines import FEATURES, MACHINES, EmbeddedMachine

FAMILY = "embedded"
PLATFORMS = ("qemu", "gdb", "serial")
VARIABLES = {platform: f"MOTET_EMBEDDED_{platform.upper()}" for platform in PLATFORMS}


@dataclass(frozen=True)
class EmbeddedOptions:
    """See the module's documentation; times are in seconds."""

    platform: str
    machine: EmbeddedMachine = MACHINES["mps3-an547"]
    image: Path | None = None
    cpu: str = ""
    memory: int = 0
    timeout: float = 60.0
    answer: float = 10.0
    boot: float = 20.0
    verbose: bool = False
    link: str = "gdb"
    count: bool = False
    address: str = ""
    flash: bool = True
    port: str = ""
    baud: int = 115200

    @property
    def processor(self) -> str:
        """The name of the compiler's target for it."""
        return self.cpu or self.machine.cpu

    def agent(self, device: str) -> AgentImage:
        """The image to start. Raises DeviceError."""
        return shipped_image(self.machine.image) if self.image is None else given_image(self.image, device)


def parse(uri: str, environment: Mapping[str, str] = os.environ) -> EmbeddedOptions:
    """The options in a device's name, with those of the environment. Raises DeviceError for an unknown option, one of
    another platform, or one out of range."""
    platform, sources = kinds.given_options(uri, VARIABLES, environment)
    options = EmbeddedOptions(platform)
    for where, pairs in sources:
        for name, value in pairs.items():
            options = replace(options, **{name: kinds.parse_option(_PARSERS, platform, name, value, where)})
    if options.cpu and options.image is None:
        raise DeviceError(f"device {uri}: cpu={options.cpu} without an image; expected machine=NAME or image=FILE")
    return options


_PARSERS: dict[str, kinds.OptionParser] = {
    "machine": (MACHINES.get, f"one of {', '.join(MACHINES)}", ""),
    "image": kinds.given(Path, "a file"),
    "cpu": kinds.one_of(tuple(FEATURES)),
    "memory": (lambda text: kinds.parse_bytes(text, "KM") or None, "bytes, as in 256K or 2M", ""),
    "timeout": kinds.seconds(1e6, "seconds, 0 for any"),
    "answer": kinds.seconds(1e6),
    "boot": kinds.seconds(1e6),
    "verbose": kinds.switch(),
    "link": kinds.one_of(("gdb", "serial"), "qemu"),
    "count": kinds.switch("qemu"),
    "address": kinds.given(str, kinds.STUB, "gdb"),
    "flash": kinds.switch("gdb"),
    "port": kinds.given(str, "a serial port, as /dev/ttyUSB0", "serial"),
    "baud": kinds.baud("gdb serial"),
}
