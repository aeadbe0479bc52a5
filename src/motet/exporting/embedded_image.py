"""Exports a function as the image of an embedded device: the agent, code, constants, commands and a static memory plan.

The image is the device's memory as it would be after the host had loaded and submitted the function
(`motet.runtime.drivers.embedded`). The device runs the function once when it starts, and then waits. To run it again,
write inputs and set `motet_request` to 1.

Symbols give addresses: `motet_input_NAME`, `motet_result_NAME`, `motet_request`, `motet_status` (2 is success),
`motet_completed` (runs), `motet_ticks` (u64: the first command's time by the device's clock), and the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from motet.errors import OptionError, OutOfMemoryError
from motet.exporting.static import StaticFunction, check_inputs, exported_symbols, place_externals
from motet.runtime.drivers.common.elf.executables import write_executable
from motet.runtime.drivers.common.elf.structures import LoadedSegment
from motet.runtime.drivers.common.recording import bytes_of, offset_of
from motet.runtime.drivers.embedded.device import heap_of
from motet.runtime.drivers.embedded.image import AgentImage, bin_file, hex_file, shipped_image
from motet.runtime.drivers.embedded.machines import MACHINES, EmbeddedMachine, machine_of_cpu
from motet.runtime.drivers.embedded.program import EmbeddedBuffer, EmbeddedWork, link_objects
from motet.runtime.drivers.embedded.protocol import COMMAND_TYPE, MAILBOX_TYPE

FAMILY = "embedded"
FORMATS = ("elf", "bin", "hex")


@dataclass(frozen=True)
class FlashImage:
    """An image, the addresses of its symbols, and its parts in words."""

    machine: str
    image: AgentImage
    segments: Sequence[LoadedSegment]
    symbols: Mapping[str, int]
    sizes: str

    def file(self, format: str) -> bytes:
        """The content of a file in one of FORMATS. Raises OptionError if the image is too sparse for `bin`."""
        entry = self.image.symbols["motet_entry"]
        if format == "elf":
            return write_executable(self.image.machine, entry, self.segments, self.symbols, 16)
        if format == "bin":
            return bin_file(self.segments)
        return hex_file(self.segments, entry)


def machine_for(function: StaticFunction, name: str | None) -> EmbeddedMachine:
    """The machine called `name`, or the one with the processor that the code is for. Raises OptionError."""
    variant = function.variant
    if variant.family != FAMILY:
        raise OptionError(
            f"{function.signature.name}: code for {variant.family}:{variant.target}; expected a target of the family "
            f"{FAMILY}"
        )
    machine = MACHINES.get(name) if name else machine_of_cpu(variant.target)
    if machine is None:
        raise OptionError(f"--machine {name}: there is none; available: {', '.join(MACHINES)}")
    if machine.cpu != variant.target:
        raise OptionError(f"--machine {machine.name}: it has a {machine.cpu}; the code is for {variant.target}")
    return machine


def export_image(
    function: StaticFunction, machine: EmbeddedMachine, inputs: Sequence[np.ndarray[Any, Any]] = ()
) -> FlashImage:
    """`function` for `machine`, with the contents of `inputs` if given, else zeros.

    Raises OutOfMemoryError, with the sizes of its parts, if it does not fit; DeviceError for code that cannot be
    linked; CallError for inputs of other shapes.
    """
    check_inputs(function, inputs)
    image = shipped_image(machine.image)
    concrete = function.concrete
    heap = heap_of(image, 0, machine.name)
    tensors = sum(shape.bytes for shape in (*concrete.inputs, *concrete.results))
    constants = sum(array.nbytes for array in function.parameters)
    code = sum(map(len, function.objects))
    sizes = (
        f"code {code:,}, constants {constants:,}, inputs and results {tensors:,}, intermediate values "
        f"{concrete.arena:,}, scratch {concrete.scratch:,} bytes"
    )
    try:
        executable, content = link_objects(heap, image, function.objects, function.names, machine.name)
        externals = place_externals(function, lambda size: EmbeddedBuffer(heap, size))
        scratch = EmbeddedBuffer(heap, concrete.scratch)
        work = EmbeddedWork(
            machine.name, executable, concrete.work, concrete.externals, scratch, heap, image.pointer_bytes
        )
    except OutOfMemoryError as error:
        place = f"{machine.name} with {heap.bytes:,} bytes in {len(image.heap)} ranges for {sizes}"
        raise OutOfMemoryError(error.bytes, place) from None
    constants_at = externals[concrete.externals - len(function.parameters) :]
    parts = [(executable.code.address, content), (work.place.address, work.content([e.address for e in externals]))]
    filled = [*zip(externals, inputs, strict=False), *zip(constants_at, function.parameters, strict=True)]
    parts += [(buffer.address, bytes_of(np.ascontiguousarray(array)).tobytes()) for buffer, array in filled]
    segments = _segments(image, parts, _mailbox(work))
    symbols = dict(image.symbols) | exported_symbols(function, externals, executable.addresses)
    for field in ("request", "status", "completed"):
        symbols[f"motet_{field}"] = image.symbols["motet_mailbox"] + offset_of(MAILBOX_TYPE, field)
    symbols["motet_ticks"] = work.place.address + offset_of(COMMAND_TYPE, "ticks")
    return FlashImage(machine.name, image, segments, symbols, sizes)


def _mailbox(work: EmbeddedWork) -> bytes:
    """The mailbox with a submitted batch."""
    box = np.zeros((), MAILBOX_TYPE)
    box["request"], box["commands"], box["count"] = 1, work.place.address, len(work.work)
    return box.tobytes()


def _segments(image: AgentImage, parts: Sequence[tuple[int, bytes]], mailbox: bytes) -> list[LoadedSegment]:
    """The agent with its mailbox, and the parts, joined where at most a page of zeros is between them."""
    segments: list[LoadedSegment] = []
    at = image.symbols["motet_mailbox"]
    for segment in image.segments:
        offset = at - segment.address
        if 0 <= offset < len(segment.data):
            data = segment.data[:offset] + mailbox + segment.data[offset + len(mailbox) :]
            segment = replace(segment, data=data)
        segments.append(segment)
    for address, data in sorted(parts):
        last = segments[-1]
        gap = address - last.address - last.size
        if data and 0 <= gap <= 4096:
            joined = last.data.ljust(address - last.address, b"\0") + data
            segments[-1] = LoadedSegment(last.address, joined, len(joined))
        elif data:
            segments.append(LoadedSegment(address, data, len(data)))
    return segments
