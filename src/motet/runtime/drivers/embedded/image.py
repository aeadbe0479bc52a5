"""Images of embedded devices: the agent of a machine as an ELF file, and images to flash as ELF, Intel HEX or bytes.

Sources: System V ABI, chapters 4 and 5; Intel Hexadecimal Object File Format Specification, revision A.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from motet.errors import DeviceError, OptionError
from motet.runtime.drivers.embedded.protocol import BOARD_TYPE, DIGEST

_FOLDER = resources.files("motet.runtime.drivers.embedded") / "firmware"
# ELF's machine number and class, by LLVM's architecture.
MACHINES = {(40, 1): "thumb", (243, 1): "riscv32", (243, 2): "riscv64"}
MOST_BIN = 64 << 20  # bytes of a `bin` file, which contains the gaps between segments
_LOAD, _SYMTAB = 1, 2
_OWN = "motet_"
_HEX_BYTES = 16


@dataclass(frozen=True)
class FlashSegment:
    """Bytes at an address, followed by zeros up to `size` bytes."""

    address: int
    data: bytes
    size: int


@dataclass(frozen=True)
class AgentImage:
    """An agent for one machine. `machine` is its architecture (`thumb`, `riscv32`, `riscv64`), `elf` the whole file.
    `clock` is in ticks per second; `heap` are the ranges of memory for programs and data."""

    where: str
    machine: str
    elf: bytes
    segments: Sequence[FlashSegment]
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
        machine, segments, symbols = _parse(data)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError):
        raise DeviceError(f"image {where}: not an ELF executable for Cortex-M or RISC-V") from None
    missing = [name for name in ("motet_board", "motet_mailbox", "motet_pause", "motet_entry") if name not in symbols]
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
    return AgentImage(where, machine, data, segments, symbols, int(described["clock"]), heap)


def _parse(data: bytes) -> tuple[str, list[FlashSegment], dict[str, int]]:
    wide = data[4] == 2
    if data[:4] != b"\x7fELF":
        raise KeyError
    header = struct.unpack_from("<16sHHIQQQIHHHHHH" if wide else "<16sHHIIIIIHHHHHH", data)
    machine = MACHINES[header[2], data[4]]
    segments: list[FlashSegment] = []
    for number in range(header[10]):
        fields = struct.unpack_from("<IIQQQQQQ" if wide else "<IIIIIIII", data, header[5] + number * header[9])
        kind = fields[0]
        offset, address, filled, size = (fields[place] for place in ((2, 4, 5, 6) if wide else (1, 3, 4, 5)))
        if kind == _LOAD:
            segments.append(FlashSegment(address, data[offset : offset + filled], size))
    sections = [
        struct.unpack_from("<IIQQQQIIQQ" if wide else "<IIIIIIIIII", data, header[6] + number * header[11])
        for number in range(header[12])
    ]
    symbols: dict[str, int] = {}
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        names = sections[section[6]][4]
        table = data[section[4] : section[4] + section[5]]
        for entry in struct.iter_unpack("<IBBHQQ" if wide else "<IIIBBH", table):
            at = names + entry[0]
            symbols[data[at : data.index(b"\0", at)].decode()] = entry[4] if wide else entry[1]
    symbols.pop("", None)
    return machine, segments, symbols


def _contents(segments: Sequence[FlashSegment], address: int, size: int) -> bytes | None:
    """The bytes at an address; None outside the segments."""
    for segment in segments:
        at = address - segment.address
        if at >= 0 and at + size <= len(segment.data):
            return segment.data[at : at + size]
    return None


# -- files to flash ------------------------------------------------------------------------------------


def elf_file(image: AgentImage, segments: Sequence[FlashSegment], symbols: Mapping[str, int]) -> bytes:
    """A static executable with these segments, for the machine of `image` and with its entry, and absolute symbols."""
    wide = image.machine == "riscv64"
    number = next(number for (number, _), name in MACHINES.items() if name == image.machine)
    flags = {"thumb": 0x05000000, "riscv32": 5, "riscv64": 5}[image.machine]
    sizes = (64, 56, 64) if wide else (52, 32, 40)
    at = sizes[0] + sizes[1] * len(segments)
    table, content = b"", b""
    for segment in segments:
        padding = (segment.address - at) % 16
        at += padding
        content += bytes(padding) + segment.data
        filled, size = len(segment.data), max(segment.size, len(segment.data))
        place = (segment.address, segment.address, filled, size)
        table += struct.pack("<IIQQQQQQ", 1, 7, at, *place, 16) if wide else struct.pack("<8I", 1, at, *place, 7, 16)
        at += filled
    strings, entries = b"\0", bytes(24 if wide else 16)
    for name, address in symbols.items():
        place = len(strings)
        entries += struct.pack("<IBBHQQ", place, 16, 0, 0xFFF1, address, 0) if wide else \
            struct.pack("<IIIBBH", place, address, 0, 16, 0, 0xFFF1)
        strings += name.encode() + b"\0"
    titles = b"\0.symtab\0.strtab\0.shstrtab\0"
    section = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    word = 8 if wide else 4
    places = (at, at + len(entries), at + len(entries) + len(strings))
    sections = struct.pack(section, *[0] * 10)
    sections += struct.pack(section, 1, 2, 0, 0, places[0], len(entries), 2, 1, word, 24 if wide else 16)
    sections += struct.pack(section, 9, 3, 0, 0, places[1], len(strings), 0, 0, 1, 0)
    sections += struct.pack(section, 17, 3, 0, 0, places[2], len(titles), 0, 0, 1, 0)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH" if wide else "<16sHHIIIIIHHHHHH", b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9),
        2, number, 1, image.symbols["motet_entry"], sizes[0], places[2] + len(titles), flags, sizes[0], sizes[1],
        len(segments), sizes[2], 4, 3,
    )
    return header + table + content + entries + strings + titles + sections


def bin_file(segments: Sequence[FlashSegment]) -> bytes:
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


def hex_file(segments: Sequence[FlashSegment], entry: int) -> bytes:
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
