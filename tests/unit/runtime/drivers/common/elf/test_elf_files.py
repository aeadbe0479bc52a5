"""ELF files: what is written is where the format says, and damaged files are refused without another failure."""

from __future__ import annotations

import random
import struct
from importlib import resources

import pytest

from motet.errors import ArtifactError, DeviceError
from motet.runtime.drivers.common.elf.executables import write_executable
from motet.runtime.drivers.common.elf.linking import Linker
from motet.runtime.drivers.common.elf.objects import read_object
from motet.runtime.drivers.common.elf.structures import ElfError, ElfFile, LoadedSegment
from motet.runtime.drivers.embedded.image import read_image

SEGMENTS = (LoadedSegment(0x1010, b"code", 4), LoadedSegment(0x8003, b"data" * 5, 4096))
SYMBOLS = {"first": 0x1010, "second": 0xFFFF0000}
DRIVERS = resources.files("motet.runtime.drivers")
OBJECTS = ("x86_64", "aarch64", "riscv64")
IMAGES = ("cortex-m4.mps2-an386.elf", "rv32gc.virt.elf", "rv64gc.virt.elf")


@pytest.mark.parametrize(("machine", "number", "wide"), [("thumb", 40, 0), ("riscv32", 243, 0), ("riscv64", 243, 1)])
def test_an_executable_has_segments_and_symbols_where_its_headers_say(machine: str, number: int, wide: int) -> None:
    data = write_executable(machine, 0x1011, SEGMENTS, SYMBOLS, 16)
    header = struct.unpack_from(("<16sHHIIIIIHHHHHH", "<16sHHIQQQIHHHHHH")[wide], data)
    assert header[0][:7] == bytes([0x7F, 0x45, 0x4C, 0x46, 1 + wide, 1, 1])
    assert header[1:5] == (2, number, 1, 0x1011) and header[10:] == (2, (40, 64)[wide], 4, 3)
    for index, segment in enumerate(SEGMENTS):
        fields = struct.unpack_from(("<8I", "<IIQQQQQQ")[wide], data, header[5] + index * header[9])
        offset, address, filled, size = (fields[place] for place in ((1, 2, 4, 5), (2, 3, 5, 6))[wide])
        assert (fields[0], address, size) == (1, segment.address, segment.size)
        assert data[offset : offset + filled] == segment.data and (offset - address) % 16 == 0
    sections = [
        struct.unpack_from(("<10I", "<IIQQQQIIQQ")[wide], data, header[6] + index * header[11]) for index in range(4)
    ]
    table, names = (data[each[4] : each[4] + each[5]] for each in sections[1:3])
    found: dict[bytes, int] = {}
    for entry in struct.iter_unpack(("<IIIBBH", "<IBBHQQ")[wide], table):
        found[names[entry[0] : names.index(b"\0", entry[0])]] = entry[(1, 4)[wide]]
    assert found == {b"": 0, b"first": 0x1010, b"second": 0xFFFF0000}


def test_what_is_written_is_read() -> None:
    file = ElfFile(write_executable("riscv32", 0x1010, SEGMENTS, SYMBOLS, 64))
    assert (file.machine, file.entry, file.named(".strtab")) == ("riscv32", 0x1010, [2])
    assert file.segments() == list(SEGMENTS)
    assert {symbol.name: symbol.value for symbol in file.symbols() if symbol.name} == SYMBOLS


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(46), b"\x7fELF\x03\x01" + bytes(99)])
def test_what_is_no_elf_file(data: bytes) -> None:
    with pytest.raises(ElfError, match="ELF file"):
        ElfFile(data)


def _damaged(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        place = rng.choice((rng.randrange(len(data)), rng.randrange(64), len(data) - rng.randrange(1, 1500)))
        changed[place] ^= rng.randrange(1, 256)
    return bytes(changed[: rng.randrange(len(data))] if rng.random() < 0.1 else changed)


@pytest.mark.parametrize("machine", OBJECTS)
def test_a_damaged_object_is_linked_or_refused(machine: str) -> None:
    data = (DRIVERS / "host" / f"support-{machine}.o").read_bytes()
    for seed in range(200):
        try:
            linker = Linker([read_object(_damaged(data, random.Random(seed)), "damaged.o")], [], machine)
            if linker.size < 1 << 24:
                linker.link(memoryview(bytearray(linker.size)), 0x10000000, lambda name: 0x10400000)
        except ArtifactError as error:
            assert str(error).startswith(("damaged.o: ", "object 0: ")), seed


@pytest.mark.parametrize("name", IMAGES)
def test_a_damaged_image_is_read_or_refused(name: str) -> None:
    data = (DRIVERS / "embedded" / "firmware" / name).read_bytes()
    for seed in range(200):
        try:
            read_image(_damaged(data, random.Random(seed)), "damaged.elf")
        except DeviceError as error:
            assert str(error).startswith("image damaged.elf: "), seed
