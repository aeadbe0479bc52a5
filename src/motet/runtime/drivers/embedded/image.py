"""Images of embedded devices: the agent of a machine as an ELF file, and images to flash as Intel HEX or bytes.

Source: Intel Hexadecimal Object File Format Specification, revision A.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from motet.errors import DeviceError, OptionError
from motet.runtime.drivers.common.elf.structures import ElfError, ElfFile, LoadedSegment
from motet.runtime.drivers.embedded.protocol import BOARD_TYPE, DIGEST

_FOLDER = resources.files("motet.runtime.drivers.embedded") / "firmware"
MACHINES = ("thumb", "riscv32", "riscv64")
MOST_BIN = 64 << 20  # bytes of a `bin` file, which contains the gaps between segments
_OWN = "motet_"
_SYMBOLS = ("motet_board", "motet_mailbox", "motet_pause", "motet_entry", "motet_image_end")
_HEX_BYTES = 16


@dataclass(frozen=True)
class AgentImage:
    """An agent for one machine. `machine` is its architecture (`thumb`, `riscv32`, `riscv64`), `elf` the whole file.
    `clock` is in ticks per second; `heap` are the ranges of memory for programs and data."""

    where: str
    machine: str
    elf: bytes
    segments: Sequence[LoadedSegment]
    symbols: Mapping[str, int]
    clock: int
    heap: Sequence[tuple[int, int]]

    @property
    def pointer_bytes(self) -> int:
        return 8 if self.machine == "riscv64" else 4

    @property
    def library(self) -> dict[str, int]:
        """The addresses of the functions that kernels may call."""
        return {name: address for name, address in self.symbols.items() if not name.startswith(_OWN)}


@functools.cache
def shipped_image(name: str) -> AgentImage:
    """The agent for a machine of `machines.py`, by its file's name. Raises DeviceError if the file is damaged."""
    return read_image((_FOLDER / name).read_bytes(), name)


def given_image(path: Path, device: str) -> AgentImage:
    """An agent that a user built for a board. Raises DeviceError."""
    try:
        return read_image(path.read_bytes(), str(path))
    except OSError as error:
        raise DeviceError(f"device {device}: image {path}: {error.strerror}") from None


def read_image(data: bytes, where: str) -> AgentImage:
    """The agent in an ELF file. Raises DeviceError if it is not one of this version."""
    try:
        file = ElfFile(data)
        segments = file.segments()
        symbols = {symbol.name: symbol.value for symbol in file.symbols() if symbol.name}
    except ElfError:
        file, segments, symbols = None, [], {}
    if file is None or file.machine not in MACHINES:
        raise DeviceError(f"image {where}: not an ELF executable for Cortex-M or RISC-V")
    missing = [name for name in _SYMBOLS if name not in symbols]
    board = None if missing else _contents(segments, symbols["motet_board"], BOARD_TYPE.itemsize)
    if board is None:
        raise DeviceError(f"image {where}: not Motet's agent; build one with drivers/embedded/firmware/Makefile")
    described = np.frombuffer(board, BOARD_TYPE)[0]
    if int(described["digest"]) != DIGEST:
        raise DeviceError(
            f"image {where}: an agent of version {int(described['digest']):#010x}; expected {DIGEST:#010x}; build it "
            "again"
        )
    end = symbols["motet_image_end"]
    base = min(segment.address for segment in segments)
    ranges = [(int(first), int(last)) for first, last in described["heap"] if last]
    heap = [(end if first <= base < last else first, last) for first, last in ranges]
    return AgentImage(where, file.machine, data, segments, symbols, int(described["clock"]), heap)


def _contents(segments: Sequence[LoadedSegment], address: int, size: int) -> bytes | None:
    """The bytes at an address; None outside the segments."""
    for segment in segments:
        at = address - segment.address
        if at >= 0 and at + size <= len(segment.data):
            return segment.data[at : at + size]
    return None


# -- files to flash ------------------------------------------------------------------------------------


def bin_file(segments: Sequence[LoadedSegment]) -> bytes:
    """The bytes from the first address to the last, zeros between segments. Raises OptionError if they are too far
    apart."""
    begin = min(segment.address for segment in segments)
    end = max(segment.address + len(segment.data) for segment in segments)
    if end - begin > MOST_BIN:
        listing = ", ".join(f"{segment.address:#x} ({len(segment.data):,} bytes)" for segment in segments)
        raise OptionError(
            f"--format bin: the segments are {end - begin:,} bytes apart; expected {MOST_BIN:,} or less: {listing}; "
            "write elf or hex"
        )
    content = bytearray(end - begin)
    for segment in segments:
        at = segment.address - begin
        content[at : at + len(segment.data)] = segment.data
    return bytes(content)


def hex_file(segments: Sequence[LoadedSegment], entry: int) -> bytes:
    """Intel HEX with linear addresses of 32 bits."""
    lines: list[str] = []
    for segment in segments:
        upper = -1
        at = 0
        while at < len(segment.data):
            address = segment.address + at
            if address >> 16 != upper:
                upper = address >> 16
                lines.append(_hex_record(0, 4, upper.to_bytes(2, "big")))
            size = min(_HEX_BYTES, len(segment.data) - at, 0x10000 - (address & 0xFFFF))
            lines.append(_hex_record(address & 0xFFFF, 0, segment.data[at : at + size]))
            at += size
    lines += [_hex_record(0, 5, entry.to_bytes(4, "big")), _hex_record(0, 1, b"")]
    return "".join(lines).encode()


def _hex_record(address: int, kind: int, data: bytes) -> str:
    record = bytes([len(data), *address.to_bytes(2, "big"), kind, *data])
    return f":{record.hex().upper()}{-sum(record) & 0xFF:02X}\n"
