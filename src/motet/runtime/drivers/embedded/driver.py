"""The driver for embedded devices: emulated boards, boards behind a GDB stub, and boards on a serial line.

    embedded:qemu?machine=mps3-an547                     QEMU, started when it is opened
    embedded:gdb?address=localhost:3333&machine=…        the stub of a debug probe's server, or of a running QEMU
    embedded:serial?port=/dev/ttyUSB0&machine=…          a board on which the agent runs already

`options.py` lists their options; `protocol.py` is the protocol with the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.errors import DeviceError
from motet.runtime.device import API_VERSION, DeviceInfo
from motet.runtime.drivers.common.link import DeviceLink, LinkLost, connect, open_port
from motet.runtime.drivers.embedded import options
from motet.runtime.drivers.embedded.device import EmbeddedDevice, heap_of
from motet.runtime.drivers.embedded.emulator import BoardEmulator, missing
from motet.runtime.drivers.embedded.gdb import GdbTransport
from motet.runtime.drivers.embedded.image import AgentImage
from motet.runtime.drivers.embedded.options import FAMILY, EmbeddedOptions
from motet.runtime.drivers.embedded.serial_line import SerialTransport
from motet.runtime.drivers.embedded.transport import Transport

api = API_VERSION

_NAMES = {
    "qemu": "a microcontroller, emulated by QEMU", "gdb": "a microcontroller behind a GDB stub",
    "serial": "a microcontroller on a serial line",
}
# What says where a board is; without it there is none.
_PLACES = {"gdb": ("address", "HOST:PORT"), "serial": ("port", "FILE")}


def probe() -> Sequence[DeviceInfo]:
    found = [_described(platform) for platform in options.PLATFORMS]
    ordinals = iter(range(len(found)))
    return [replace(info, ordinal=next(ordinals)) if info.available else info for info in found]


def open(info: DeviceInfo) -> EmbeddedDevice:
    """Raises DeviceError for unknown options, and if the device does not start."""
    chosen = options.parse(info.uri)
    image = chosen.agent(info.uri)
    memory = heap_of(image, chosen.memory, info.uri).bytes
    instruction = 2**chosen.machine.shift * 1e-9 if chosen.count else 0.0
    described = replace(info, cores=1, threads=1, level=chosen.processor, memory=memory, instruction=instruction)
    emulator = BoardEmulator(info.uri, chosen, image.elf) if chosen.platform == "qemu" else None
    try:
        transport = _connect(chosen, image, emulator)
    except LinkLost as error:
        words = emulator.words() if emulator is not None else ""
        if emulator is not None:
            emulator.stop()
        raise DeviceError(f"device {info.uri}: {': '.join(filter(None, (str(error), words)))}") from None
    if emulator is None:
        return EmbeddedDevice(described, chosen, image, transport, _nothing, str)
    return EmbeddedDevice(described, chosen, image, transport, emulator.stop, emulator.words)


def _connect(chosen: EmbeddedOptions, image: AgentImage, emulator: BoardEmulator | None) -> Transport:
    """The transport of a device. Raises LinkLost."""
    link = _link(chosen, emulator)
    try:
        if "gdb" in (chosen.platform, chosen.link if emulator is not None else ""):
            return GdbTransport(link, image, chosen.boot, chosen.flash and emulator is None)
        return SerialTransport(link, image, chosen.boot)
    except LinkLost:
        link.close()
        raise


def _link(chosen: EmbeddedOptions, emulator: BoardEmulator | None) -> DeviceLink:
    """The connection to a device. Raises LinkLost."""
    if emulator is not None:
        return DeviceLink(emulator.connection.detach(), "the emulator's line")
    if chosen.platform == "gdb":
        if not chosen.address:
            raise LinkLost("no stub is named; expected address=HOST:PORT")
        return connect(chosen.address, chosen.baud)
    if not chosen.port:
        raise LinkLost("no line is named; expected port=/dev/ttyUSB0")
    return open_port(chosen.port, chosen.baud)


def _described(platform: str) -> DeviceInfo:
    uri = f"{FAMILY}:{platform}"
    try:
        chosen = options.parse(uri)
        image = chosen.agent(uri)
    except DeviceError as error:
        return DeviceInfo(_NAMES[platform], uri, available=False, reason=str(error), family=FAMILY)
    memory = heap_of(image, chosen.memory, uri).bytes
    if platform in _PLACES:
        option, value = _PLACES[platform]
        reason = f"not described; expected {option}={value}: name it {uri}?{option}={value}"
        return DeviceInfo(_NAMES[platform], uri, 1, 1, chosen.processor, memory, False, reason, FAMILY,
                          described_by=(option,))
    reason = missing(chosen.machine)
    return DeviceInfo(_NAMES[platform], uri, 1, 1, chosen.processor, memory, not reason, reason, FAMILY)


def _nothing() -> None:
    """A board keeps running."""
