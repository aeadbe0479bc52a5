"""What of the accelerator needs no emulator: options, its heap, guards, the protocol, the shipped images."""

from __future__ import annotations

import itertools
import math
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from motet.compiler.targets.families import families
from motet.errors import DeviceError, OutOfMemoryError
from motet.runtime.drivers.common.heap import ALIGNMENT, Heap
from motet.runtime.drivers.riscv import errata, installing, options, protection, protocol
from motet.runtime.drivers.riscv.memory import RiscvMemory, anonymous_file

# -- options -----------------------------------------------------------------------------------------


def test_options_are_read():
    chosen = options.parse(
        "riscv:qemu/1?harts=3&memory=1G&arch=rv64gcv512&guard=1&timeout=0.5&spin=inf&folder=/x&trace=in_asm+int", {}
    )
    assert (chosen.harts, chosen.memory, chosen.vector_bits, chosen.guard) == (3, 1 << 30, 512, True)
    assert (chosen.timeout, chosen.spin, chosen.folder, chosen.trace) == (0.5, math.inf, Path("/x"), "in_asm+int")
    assert options.parse("riscv:qemu", {}).memory == 512 << 20
    assert options.parse("riscv:qemu?count=1", {}).harts == 1
    simulator = options.parse("riscv:iss?arch=rv64gc", {"MOTET_RISCV_QEMU": "harts=4", "MOTET_RISCV_ISS": "guard=1"})
    assert (simulator.harts, simulator.count, simulator.arch, simulator.guard) == (1, True, "rv64gc", True)
    assert options.parse("riscv:qemu?vlen=512", {}).arch == "rv64gcv512"
    assert options.parse("riscv:qemu?vlen=0", {}).arch == "rv64gc"


def test_the_name_wins_over_the_environment():
    environment = {"MOTET_RISCV_QEMU": "harts=2&guard=1", "MOTET_RISCV_HW": "window=/w&offset=0x80000000&harts=5"}
    emulated = options.parse("riscv:qemu?harts=3", environment)
    assert (emulated.harts, emulated.guard, emulated.window) == (3, True, None)
    board = options.parse("riscv:hw", environment)
    assert (board.harts, board.window, board.offset) == (5, Path("/w"), 0x8000_0000)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("harts=0", r"option harts=0; expected a number of cores from 1 to 64"),
        ("harts=two", r"harts=two; expected"),
        ("memory=100", r"memory=100; expected bytes, a multiple of 1M"),
        ("memory=33M&harts=2", r"expected at least 35,651,584 for 2 harts"),
        ("arch=rv64gcv192", r"expected one of rv64gc, rv64gcv128"),
        ("timeout=-1", r"timeout=-1; expected seconds"),
        ("timeout=nan", r"timeout=nan; expected seconds"),
        ("cores=2", r"no option 'cores'; there are: harts, memory"),
        ("window=/w", r"no option 'window'"),
        ("count=1&harts=2", r"counted with harts=1 alone"),
        ("vlen=192", r"expected one of rv64gc, rv64gcv128"),
        ("trace=int", r"expected folder=FOLDER"),
        ("harts=1&harts=2", r"given twice"),
        ("harts", r"expected key=value"),
    ],
)
def test_options_that_cannot_be(query: str, words: str):
    with pytest.raises(DeviceError, match=words):
        options.parse(f"riscv:qemu?{query}", {})


def test_a_simulator_counts():
    with pytest.raises(DeviceError, match="count=0; expected count=1"):
        options.parse("riscv:iss?count=0", {})
    with pytest.raises(DeviceError, match="harts=1 alone"):
        options.parse("riscv:iss?harts=2", {})


def test_mistakes_in_the_environment_name_the_variable():
    with pytest.raises(DeviceError, match="environment variable MOTET_RISCV_QEMU: option harts=x"):
        options.parse("riscv:qemu", {"MOTET_RISCV_QEMU": "harts=x"})


def test_every_target_of_the_compiler_runs_on_the_architecture_of_its_name():
    targets = families()["riscv"].targets
    assert set(targets) == set(options.ARCHITECTURES)
    for (name, target), arch in itertools.product(targets.items(), options.ARCHITECTURES):
        device = options.parse(f"riscv:qemu?arch={arch}", {})
        fits = name == "rv64gc" or target.vector_bits <= device.vector_bits
        assert (set(target.requires) <= device.features) == fits


# -- memory ------------------------------------------------------------------------------------------


def test_a_heap_hands_out_ranges_that_do_not_overlap_and_takes_all_of_them_back():
    heap, rng = Heap([(0x1000_0040, 0x1100_0000)], "test"), random.Random(1)
    taken: dict[int, int] = {}
    for _ in range(3000):
        if taken and rng.random() < 0.48:
            address = rng.choice(list(taken))
            del taken[address]
            heap.free(address)
            continue
        size = rng.choice((0, 1, 63, 64, 65, 4095, 4096, 100_000, rng.randrange(1 << 18)))
        try:
            address = heap.allocate(size)
        except OutOfMemoryError:
            continue
        assert address % ALIGNMENT == 0 and 0x1000_0040 <= address <= 0x1100_0000 - size
        assert size < 4096 or address % 4096 == 0
        end = address + max(size, 1)
        assert all(end <= other or other + max(length, 1) <= address for other, length in taken.items())
        taken[address] = size
    for address in taken:
        heap.free(address)
    assert heap.used == 0
    assert heap.allocate(heap.bytes - 4096) >= 0x1000_0040
    with pytest.raises(OutOfMemoryError):
        heap.allocate(8192)


# -- guards ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def memory() -> RiscvMemory:
    return RiscvMemory(anonymous_file(64 << 20, "test"), 64 << 20, "test")


def _allows(entries: np.ndarray, address: int, size: int, private: tuple[int, int]) -> tuple[bool, bool, bool]:
    """Read, write, execute, as the first matching entry of the architecture's PMP has it; written from its text."""
    addresses = [int(value) & ~3 for value in entries["address"][0]]
    configuration = [int(value) for value in entries["config"][0]]
    if entries["private"][0] >= 0:
        first = int(entries["private"][0])
        addresses[first], addresses[first + 1] = private
    for index, config in enumerate(configuration):
        if config >> 3 & 3 != 1:
            continue
        begin = addresses[index - 1] if index else 0
        inside = [begin <= byte < addresses[index] for byte in range(address, address + size)]
        if any(inside):
            return (False, False, False) if not all(inside) else (bool(config & 1), bool(config & 2), bool(config & 4))
    return False, False, False


@pytest.mark.parametrize("count", [0, 1, 5, 6, 17])
def test_guards_allow_what_a_launch_refers_to_and_little_else(memory: RiscvMemory, count: int):
    rng, private = random.Random(count), (memory.end - 8192, memory.end - 4096)
    begins = rng.sample(range(memory.control_end, memory.end - 16384, 8192), count)
    ranges = [(begin, begin + rng.randrange(1, 4096)) for begin in begins]
    entries = protection.guarded(memory, ranges)
    for begin, end in ranges:
        assert _allows(entries, begin, 1, private)[:2] == (True, True)
        assert _allows(entries, end - 1, 1, private)[:2] == (True, True)
        if count <= 5:
            assert _allows(entries, begin - 4, 4, private) == (False, False, False)
            assert _allows(entries, -(-end // 4) * 4, 4, private) == (False, False, False)
    assert _allows(entries, private[0], 8, private) == (True, True, False)
    assert _allows(entries, private[1], 8, private) == (False, False, False)
    _check_common(memory, entries, private)


def test_without_guards_the_heap_is_open_and_the_rest_is_not(memory: RiscvMemory):
    entries = protection.open_protection(memory)
    assert _allows(entries, memory.control_end, 8, (0, 0)) == (True, True, False)
    assert _allows(entries, memory.end - 8, 8, (0, 0)) == (True, True, False)
    assert _allows(entries, memory.end, 8, (0, 0)) == (False, False, False)
    _check_common(memory, entries, (0, 0))


def _check_common(memory: RiscvMemory, entries: np.ndarray, private: tuple[int, int]) -> None:
    for address in (0, protocol.DRAM, protocol.DRAM + protocol.MAILBOX, protocol.DRAM + protocol.CODE - 8, 0x1000_0000):
        assert _allows(entries, address, 8, private) == (False, False, False)
    assert _allows(entries, protocol.DRAM + protocol.TRAMPOLINE, 4, private) == (True, False, True)
    assert _allows(entries, memory.code_end - 4, 4, private) == (True, False, True)
    assert _allows(entries, memory.control_end - 8, 8, private) == (True, False, False)


# -- errata ----------------------------------------------------------------------------------------


def test_conversions_are_found_between_instructions_of_two_and_four_bytes():
    # As GNU's assembler has them: nop (two bytes), vfcvt.rtz.x.f.v v1, v2; vfcvt.x.f.v v1, v2;
    # vfncvt.rod.f.f.w v1, v2, v0.t; vfwcvt.rtz.xu.f.v v4, v2; lui a0, 0x1.
    words = (0x4A2390D7, 0x4A2090D7, 0x482A90D7, 0x4A271257, 0x00001537)
    code = struct.pack("<H5IH", 0x0001, *words, 0x0001)
    assert errata.find_conversions(code) == [2, 10, 14]
    within = struct.pack("<II", 0x90D7_0013, 0x0001_4A23)  # its bytes, but of two other instructions
    assert struct.pack("<I", words[0]) in within and errata.find_conversions(within) == []


def test_conversions_go_by_way_of_stubs_and_come_back():
    image = bytearray(struct.pack("<3I", 0x00000013, 0x4A2390D7, 0x00008067).ljust(4096, b"\0") + bytes(errata.STUB))
    errata.divert(memoryview(image), [4], 4096, "test")
    assert _jump_target(image, 4) == 4096
    assert struct.unpack_from("<2I", image, 4096) == (0xC0007053, 0x4A2390D7)
    assert _jump_target(image, 4104) == 8
    with pytest.raises(DeviceError, match=r"QEMU 8\.0"):
        errata.divert(memoryview(bytearray(3 << 20)), [0], 2 << 20, "test")


def _jump_target(image: bytes | bytearray, at: int) -> int:
    """Where the jump at `at` goes, by the table of immediates of the unprivileged architecture."""
    word = struct.unpack_from("<I", image, at)[0]
    assert word & 0xFFF == 0x06F, "jal zero"
    fields = ((31, 20, 1), (12, 12, 8), (20, 11, 1), (21, 1, 10))
    value = sum((word >> low & (1 << bits) - 1) << position for low, position, bits in fields)
    return at + (value ^ 1 << 20) - (1 << 20)


# -- the protocol and the images -----------------------------------------------------------------------


def test_the_shipped_firmware_was_built_from_this_protocol():
    image = (installing._FOLDER / "firmware.bin").read_bytes()
    assert len(image) < protocol.FIRMWARE_BYTES
    low = (protocol.DIGEST & 0xFFF ^ 0x800) - 0x800
    upper = (protocol.DIGEST - low >> 12) & 0xFFFFF
    words = [struct.unpack_from("<I", image, at)[0] for at in range(0, len(image) - 3, 2)]
    assert any(word & 0x7F == 0x37 and word >> 12 == upper for word in words), "rebuild it: make firmware"


def test_structures_are_as_the_header_says():
    text = protocol.header()
    for structure, size in ((protocol.MAILBOX_TYPE, 128), (protocol.BATCH_TYPE, 128), (protocol.COMMAND_TYPE, 128)):
        assert structure.itemsize == size
    assert f"#define DIGEST {protocol.DIGEST:#x}u" in text
    assert protocol.RING + protocol.SLOTS * protocol.BATCH_TYPE.itemsize <= protocol.CODE
    for structure in (protocol.MAILBOX_TYPE, protocol.BATCH_TYPE, protocol.COMMAND_TYPE, protocol.PROTECTION_TYPE):
        assert structure.fields is not None
        for field, offset, *_ in structure.fields.values():
            assert offset % (field.subdtype[0] if field.subdtype else field).itemsize == 0, "C would pad here"


def test_the_library_lies_where_its_symbols_say():
    end = protocol.DRAM + protocol.LIBRARY + len(installing.library())
    assert end <= protocol.DRAM + protocol.CODE_FIRST
    symbols = installing.library_symbols()
    assert {"memcpy", "memset", "expf", "tanh", "__truncsfhf2"} <= symbols.keys()
    assert all(protocol.DRAM + protocol.LIBRARY <= address < end for address in symbols.values())
