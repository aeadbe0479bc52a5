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
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from motet.artifact.uri import split_uri
from motet.errors import DeviceError
from motet.runtime.drivers.common.options import BAUD, OptionParser, parse_baud, parse_option
from motet.runtime.drivers.embedded.image import AgentImage, given_image, shipped_image
from motet.runtime.drivers.embedded.machines import FEATURES, MACHINES, EmbeddedMachine

FAMILY = "embedded"
PLATFORMS = ("qemu", "gdb", "serial")
VARIABLES = {platform: f"MOTET_EMBEDDED_{platform.upper()}" for platform in PLATFORMS}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


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
    base, given = split_uri(uri)
    platform = base.partition(":")[2].partition("/")[0]
    variable = VARIABLES[platform]
    _, general = split_uri(f"{base}?{environment[variable]}") if environment.get(variable) else ("", {})
    options = EmbeddedOptions(platform)
    for where, pairs in ((f"environment variable {variable}", general), (f"device {uri}", given)):
        for name, value in pairs.items():
            options = _with(options, name, value, where)
    if options.cpu and options.image is None:
        raise DeviceError(f"device {uri}: cpu={options.cpu} without an image; expected machine=NAME or image=FILE")
    return options


def _with(options: EmbeddedOptions, name: str, value: str, where: str) -> EmbeddedOptions:
    return replace(options, **{name: parse_option(_PARSERS, options.platform, name, value, where)})


def _memory(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)([KM]?)i?B?", text)
    return int(match[1]) * _UNITS[match[2]] or None if match else None


def _seconds(text: str) -> float | None:
    return value if 0 <= (value := float(text)) <= 1e6 else None


def _switch(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text)


def _one_of(*names: str) -> Callable[[str], str | None]:
    return lambda text: text if text in names else None


_PARSERS: dict[str, OptionParser] = {
    "machine": (MACHINES.get, f"one of {', '.join(MACHINES)}", ""),
    "image": (lambda text: Path(text) if text else None, "a file", ""),
    "cpu": (_one_of(*FEATURES), f"one of {', '.join(FEATURES)}", ""),
    "memory": (_memory, "bytes, as in 256K or 2M", ""),
    "timeout": (_seconds, "seconds, 0 for any", ""),
    "answer": (_seconds, "seconds", ""),
    "boot": (_seconds, "seconds", ""),
    "verbose": (_switch, "0 or 1", ""),
    "link": (_one_of("gdb", "serial"), "gdb or serial", "qemu"),
    "count": (_switch, "0 or 1", "qemu"),
    "address": (lambda text: text or None, "HOST:PORT, or the path of a socket or serial port", "gdb"),
    "flash": (_switch, "0 or 1", "gdb"),
    "port": (lambda text: text or None, "a serial port, as /dev/ttyUSB0", "serial"),
    "baud": (parse_baud, BAUD, "gdb serial"),
}
