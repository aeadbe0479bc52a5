"""Relocations of x86-64, AArch64, RISC-V and Thumb, which patch addresses into code.

Each machine is a table from the relocation's number to its name, the bytes that it patches, the way in which its target
is found, and a patch function. Sources: the psABI documents of the architectures (x86-64 psABI 1.0, ELF for the
Arm 64-bit and the Arm Architecture, RISC-V ELF psABI).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

# direct: the symbol itself; call: the symbol, or a stub if it is imported; table: the symbol's slot in the global
# offset table; low: the low part of the distance whose high part another relocation has.
Way = Literal["direct", "call", "table", "low"]

# (image, offset in it, address of the patched place, target address)
Patch = Callable[[memoryview, int, int, int], None]


class OutOfRangeError(Exception):
    """The patched place cannot hold `value`."""

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(value)


@dataclass(frozen=True)
class RelocationKind:
    name: str
    width: int
    way: Way
    patch: Patch


@dataclass(frozen=True)
class ElfMachine:
    """A machine's relocations. `stub(address, slot)` is code of `stub_bytes` bytes that jumps to the address in
    `slot`."""

    kinds: dict[int, RelocationKind]
    ignored: frozenset[int]
    stub_bytes: int
    stub: Callable[[int, int], bytes]


def _signed(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise OutOfRangeError(value)
    return value


def _either(value: int, bits: int) -> int:
    """A value that fits `bits` bits as a signed or an unsigned number."""
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise OutOfRangeError(value)
    return value & ((1 << bits) - 1)


def _absolute(bits: int, signed: bool | None = None) -> Patch:
    code = {8: "<B", 16: "<H", 32: "<I", 64: "<Q"}[bits]
    mask = (1 << bits) - 1

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        if bits == 64:
            value = target & mask
        elif signed is None:
            value = _either(target, bits)
        elif signed:
            value = _signed(target, bits) & mask
        elif 0 <= target <= mask:
            value = target
        else:
            raise OutOfRangeError(target)
        struct.pack_into(code, image, at, value)

    return patch


def _relative(bits: int) -> Patch:
    code = {16: "<h", 32: "<i", 64: "<q"}[bits]

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        struct.pack_into(code, image, at, _signed(target - place, bits))

    return patch


# -- x86-64 ----------------------------------------------------------------------------------------


def _x86_64_stub(address: int, slot: int) -> bytes:
    return b"\xff\x25" + struct.pack("<i", _signed(slot - address - 6, 32)) + b"\xcc\xcc"  # jmp [rip + …]


_X86_64 = ElfMachine(
    kinds={
        1: RelocationKind("R_X86_64_64", 8, "direct", _absolute(64)),
        2: RelocationKind("R_X86_64_PC32", 4, "direct", _relative(32)),
        4: RelocationKind("R_X86_64_PLT32", 4, "call", _relative(32)),
        9: RelocationKind("R_X86_64_GOTPCREL", 4, "table", _relative(32)),
        10: RelocationKind("R_X86_64_32", 4, "direct", _absolute(32, signed=False)),
        11: RelocationKind("R_X86_64_32S", 4, "direct", _absolute(32, signed=True)),
        12: RelocationKind("R_X86_64_16", 2, "direct", _absolute(16)),
        13: RelocationKind("R_X86_64_PC16", 2, "direct", _relative(16)),
        14: RelocationKind("R_X86_64_8", 1, "direct", _absolute(8)),
        24: RelocationKind("R_X86_64_PC64", 8, "direct", _relative(64)),
        41: RelocationKind("R_X86_64_GOTPCRELX", 4, "table", _relative(32)),
        42: RelocationKind("R_X86_64_REX_GOTPCRELX", 4, "table", _relative(32)),
    },
    ignored=frozenset({0}),
    stub_bytes=8,
    stub=_x86_64_stub,
)

# -- AArch64 ---------------------------------------------------------------------------------------


def _field(image: memoryview, at: int, mask: int, bits: int) -> None:
    """Replace the bits of an instruction selected by `mask`."""
    word = struct.unpack_from("<I", image, at)[0]
    struct.pack_into("<I", image, at, (word & ~mask & 0xFFFFFFFF) | (bits & mask))


def _adr_bits(value: int) -> int:
    return (value & 3) << 29 | (value >> 2 & 0x7FFFF) << 5


_ADR_MASK = _adr_bits(-1)


def _adr(image: memoryview, at: int, place: int, target: int) -> None:
    _field(image, at, _ADR_MASK, _adr_bits(_signed(target - place, 21)))


def _adr_page(image: memoryview, at: int, place: int, target: int) -> None:
    _field(image, at, _ADR_MASK, _adr_bits(_signed((target >> 12) - (place >> 12), 21)))


def _low12(scale: int) -> Patch:
    """The address's offset in its 4 KiB page, in an add (scale 0) or a load of 1 << scale bytes."""

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        if target & ((1 << scale) - 1):
            raise OutOfRangeError(target & 0xFFF)
        _field(image, at, 0xFFF << 10, (target & 0xFFF) >> scale << 10)

    return patch


def _branch(bits: int, shift: int) -> Patch:
    """A distance in instructions with `bits` bits, at bit `shift`."""
    mask = ((1 << bits) - 1) << shift

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        distance = _signed(target - place, bits + 2)
        if distance & 3:
            raise OutOfRangeError(distance)
        _field(image, at, mask, distance >> 2 << shift)

    return patch


def _move(part: int, checked: bool) -> Patch:
    """Sixteen bits of an address in a movz or movk."""

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        if checked and target >> 16 * (part + 1):
            raise OutOfRangeError(target)
        _field(image, at, 0xFFFF << 5, (target >> 16 * part & 0xFFFF) << 5)

    return patch


def _aarch64_stub(address: int, slot: int) -> bytes:
    page = _signed((slot >> 12) - (address >> 12), 21)
    return struct.pack(
        "<4I",
        0x90000010 | _adr_bits(page),  # adrp x16, slot
        0xF9400210 | (slot & 0xFFF) >> 3 << 10,  # ldr x16, [x16, slot's place in its page]
        0xD61F0200,  # br x16
        0xD503201F,  # nop
    )


_AARCH64 = ElfMachine(
    kinds={
        257: RelocationKind("R_AARCH64_ABS64", 8, "direct", _absolute(64)),
        258: RelocationKind("R_AARCH64_ABS32", 4, "direct", _absolute(32)),
        259: RelocationKind("R_AARCH64_ABS16", 2, "direct", _absolute(16)),
        260: RelocationKind("R_AARCH64_PREL64", 8, "direct", _relative(64)),
        261: RelocationKind("R_AARCH64_PREL32", 4, "direct", _relative(32)),
        262: RelocationKind("R_AARCH64_PREL16", 2, "direct", _relative(16)),
        263: RelocationKind("R_AARCH64_MOVW_UABS_G0", 4, "direct", _move(0, True)),
        264: RelocationKind("R_AARCH64_MOVW_UABS_G0_NC", 4, "direct", _move(0, False)),
        265: RelocationKind("R_AARCH64_MOVW_UABS_G1", 4, "direct", _move(1, True)),
        266: RelocationKind("R_AARCH64_MOVW_UABS_G1_NC", 4, "direct", _move(1, False)),
        267: RelocationKind("R_AARCH64_MOVW_UABS_G2", 4, "direct", _move(2, True)),
        268: RelocationKind("R_AARCH64_MOVW_UABS_G2_NC", 4, "direct", _move(2, False)),
        269: RelocationKind("R_AARCH64_MOVW_UABS_G3", 4, "direct", _move(3, True)),
        273: RelocationKind("R_AARCH64_LD_PREL_LO19", 4, "direct", _branch(19, 5)),
        274: RelocationKind("R_AARCH64_ADR_PREL_LO21", 4, "direct", _adr),
        275: RelocationKind("R_AARCH64_ADR_PREL_PG_HI21", 4, "direct", _adr_page),
        277: RelocationKind("R_AARCH64_ADD_ABS_LO12_NC", 4, "direct", _low12(0)),
        278: RelocationKind("R_AARCH64_LDST8_ABS_LO12_NC", 4, "direct", _low12(0)),
        279: RelocationKind("R_AARCH64_TSTBR14", 4, "direct", _branch(14, 5)),
        280: RelocationKind("R_AARCH64_CONDBR19", 4, "direct", _branch(19, 5)),
        282: RelocationKind("R_AARCH64_JUMP26", 4, "call", _branch(26, 0)),
        283: RelocationKind("R_AARCH64_CALL26", 4, "call", _branch(26, 0)),
        284: RelocationKind("R_AARCH64_LDST16_ABS_LO12_NC", 4, "direct", _low12(1)),
        285: RelocationKind("R_AARCH64_LDST32_ABS_LO12_NC", 4, "direct", _low12(2)),
        286: RelocationKind("R_AARCH64_LDST64_ABS_LO12_NC", 4, "direct", _low12(3)),
        299: RelocationKind("R_AARCH64_LDST128_ABS_LO12_NC", 4, "direct", _low12(4)),
        311: RelocationKind("R_AARCH64_ADR_GOT_PAGE", 4, "table", _adr_page),
        312: RelocationKind("R_AARCH64_LD64_GOT_LO12_NC", 4, "table", _low12(3)),
        314: RelocationKind("R_AARCH64_PLT32", 4, "call", _relative(32)),
    },
    ignored=frozenset({0, 256}),
    stub_bytes=16,
    stub=_aarch64_stub,
)

# -- RISC-V ----------------------------------------------------------------------------------------


def _upper(distance: int) -> int:
    """The upper 20 bits of a distance, rounded so that the signed lower 12 bits complete it."""
    return _signed(distance + 0x800, 32) & 0xFFFFF000


def _high20(image: memoryview, at: int, place: int, target: int) -> None:
    _field(image, at, 0xFFFFF000, _upper(target - place))


def _high20_absolute(image: memoryview, at: int, place: int, target: int) -> None:
    _field(image, at, 0xFFFFF000, _upper(target))


def _low12_i(image: memoryview, at: int, place: int, target: int) -> None:
    _field(image, at, 0xFFF00000, (target & 0xFFF) << 20)


def _low12_s(image: memoryview, at: int, place: int, target: int) -> None:
    _field(image, at, 0xFE000F80, (target >> 5 & 0x7F) << 25 | (target & 31) << 7)


def _riscv_call(image: memoryview, at: int, place: int, target: int) -> None:
    _high20(image, at, place, target)
    _low12_i(image, at + 4, place, target - place)


def _riscv_branch(image: memoryview, at: int, place: int, target: int) -> None:
    d = _signed(target - place, 13)
    bits = (d >> 12 & 1) << 31 | (d >> 5 & 63) << 25 | (d >> 1 & 15) << 8 | (d >> 11 & 1) << 7
    _field(image, at, 0xFE000F80, bits)


def _riscv_jump(image: memoryview, at: int, place: int, target: int) -> None:
    d = _signed(target - place, 21)
    bits = (d >> 20 & 1) << 31 | (d >> 1 & 1023) << 21 | (d >> 11 & 1) << 20 | (d >> 12 & 255) << 12
    _field(image, at, 0xFFFFF000, bits)


def _half_field(image: memoryview, at: int, mask: int, bits: int) -> None:
    word = struct.unpack_from("<H", image, at)[0]
    struct.pack_into("<H", image, at, (word & ~mask & 0xFFFF) | (bits & mask))


def _short_branch(image: memoryview, at: int, place: int, target: int) -> None:
    d = _signed(target - place, 9)
    bits = (d >> 8 & 1) << 12 | (d >> 3 & 3) << 10 | (d >> 6 & 3) << 5 | (d >> 1 & 3) << 3 | (d >> 5 & 1) << 2
    _half_field(image, at, 0x1C7C, bits)


def _short_jump(image: memoryview, at: int, place: int, target: int) -> None:
    d = _signed(target - place, 12)
    bits = (
        (d >> 11 & 1) << 12 | (d >> 4 & 1) << 11 | (d >> 8 & 3) << 9 | (d >> 10 & 1) << 8
        | (d >> 6 & 1) << 7 | (d >> 7 & 1) << 6 | (d >> 1 & 7) << 3 | (d >> 5 & 1) << 2
    )
    _half_field(image, at, 0x1FFC, bits)


def _accumulate(bits: int, sign: int) -> Patch:
    """Add to (or subtract from) the current value; sign 0 replaces it."""
    code = {8: "<B", 16: "<H", 32: "<I", 64: "<Q"}[bits]

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        before = struct.unpack_from(code, image, at)[0] if sign else 0
        struct.pack_into(code, image, at, (before + (sign or 1) * target) & ((1 << bits) - 1))

    return patch


def _six(sign: int) -> Patch:
    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        before = image[at] if sign else 0
        image[at] = (image[at] & 0xC0) | ((before + (sign or 1) * target) & 0x3F)

    return patch


def _riscv64_stub(address: int, slot: int) -> bytes:
    distance = slot - address
    return struct.pack(
        "<4I",
        0x00000E17 | _upper(distance),  # auipc t3, slot
        0x000E3E03 | (distance & 0xFFF) << 20,  # ld t3, slot(t3)
        0x000E0067,  # jr t3
        0x00000013,  # nop
    )


_RISCV64 = ElfMachine(
    kinds={
        1: RelocationKind("R_RISCV_32", 4, "direct", _absolute(32)),
        2: RelocationKind("R_RISCV_64", 8, "direct", _absolute(64)),
        16: RelocationKind("R_RISCV_BRANCH", 4, "direct", _riscv_branch),
        17: RelocationKind("R_RISCV_JAL", 4, "call", _riscv_jump),
        18: RelocationKind("R_RISCV_CALL", 8, "call", _riscv_call),
        19: RelocationKind("R_RISCV_CALL_PLT", 8, "call", _riscv_call),
        20: RelocationKind("R_RISCV_GOT_HI20", 4, "table", _high20),
        23: RelocationKind("R_RISCV_PCREL_HI20", 4, "direct", _high20),
        24: RelocationKind("R_RISCV_PCREL_LO12_I", 4, "low", _low12_i),
        25: RelocationKind("R_RISCV_PCREL_LO12_S", 4, "low", _low12_s),
        26: RelocationKind("R_RISCV_HI20", 4, "direct", _high20_absolute),
        27: RelocationKind("R_RISCV_LO12_I", 4, "direct", _low12_i),
        28: RelocationKind("R_RISCV_LO12_S", 4, "direct", _low12_s),
        33: RelocationKind("R_RISCV_ADD8", 1, "direct", _accumulate(8, 1)),
        34: RelocationKind("R_RISCV_ADD16", 2, "direct", _accumulate(16, 1)),
        35: RelocationKind("R_RISCV_ADD32", 4, "direct", _accumulate(32, 1)),
        36: RelocationKind("R_RISCV_ADD64", 8, "direct", _accumulate(64, 1)),
        37: RelocationKind("R_RISCV_SUB8", 1, "direct", _accumulate(8, -1)),
        38: RelocationKind("R_RISCV_SUB16", 2, "direct", _accumulate(16, -1)),
        39: RelocationKind("R_RISCV_SUB32", 4, "direct", _accumulate(32, -1)),
        40: RelocationKind("R_RISCV_SUB64", 8, "direct", _accumulate(64, -1)),
        44: RelocationKind("R_RISCV_RVC_BRANCH", 2, "direct", _short_branch),
        45: RelocationKind("R_RISCV_RVC_JUMP", 2, "direct", _short_jump),
        52: RelocationKind("R_RISCV_SUB6", 1, "direct", _six(-1)),
        53: RelocationKind("R_RISCV_SET6", 1, "direct", _six(0)),
        54: RelocationKind("R_RISCV_SET8", 1, "direct", _accumulate(8, 0)),
        55: RelocationKind("R_RISCV_SET16", 2, "direct", _accumulate(16, 0)),
        56: RelocationKind("R_RISCV_SET32", 4, "direct", _accumulate(32, 0)),
        57: RelocationKind("R_RISCV_32_PCREL", 4, "direct", _relative(32)),
        59: RelocationKind("R_RISCV_PLT32", 4, "call", _relative(32)),
    },
    # ALIGN and RELAX allow the linker to shrink code, which is not done: the padding remains as no-operations.
    ignored=frozenset({0, 43, 51}),
    stub_bytes=16,
    stub=_riscv64_stub,
)

def _riscv32_stub(address: int, slot: int) -> bytes:
    distance = (slot - address) & 0xFFFFFFFF
    return struct.pack(
        "<4I",
        0x00000E17 | (distance + 0x800) & 0xFFFFF000,  # auipc t3, slot
        0x000E2E03 | (distance & 0xFFF) << 20,  # lw t3, slot(t3)
        0x000E0067,  # jr t3
        0x00000013,  # nop
    )


_RISCV32 = replace(_RISCV64, stub=_riscv32_stub)

# -- Thumb, whose addends are in the code --------------------------------------------------------------


def _thumb_branch(image: memoryview, at: int, place: int, target: int) -> None:
    """A distance of 25 bits in bl or b.w; its addend is −4, the pipeline's."""
    first, second = struct.unpack_from("<2H", image, at)
    d = _signed((target & ~1) - place - 4, 25)
    sign, upper, lower = d >> 24 & 1, d >> 12 & 0x3FF, d >> 1 & 0x7FF
    j1, j2 = (d >> 23 & 1 ^ sign ^ 1), (d >> 22 & 1 ^ sign ^ 1)
    struct.pack_into(
        "<2H", image, at, first & 0xF800 | sign << 10 | upper, second & 0xD000 | j1 << 13 | j2 << 11 | lower
    )


def _thumb_add(relative: bool) -> Patch:
    """Add the target to the word in the code."""

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        before = struct.unpack_from("<I", image, at)[0]
        struct.pack_into("<I", image, at, (before + target - (place if relative else 0)) & 0xFFFFFFFF)

    return patch


def _thumb_prel31(image: memoryview, at: int, place: int, target: int) -> None:
    before = struct.unpack_from("<I", image, at)[0]
    struct.pack_into("<I", image, at, before & 0x80000000 | (before + target - place) & 0x7FFFFFFF)


def _thumb_move(shift: int, relative: bool) -> Patch:
    """Sixteen bits of an address in movw or movt, whose addend is the signed number there."""

    def patch(image: memoryview, at: int, place: int, target: int) -> None:
        first, second = struct.unpack_from("<2H", image, at)
        addend = (first & 15) << 12 | (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xFF
        value = (target + (addend ^ 0x8000) - 0x8000 - (place if relative else 0)) >> shift
        first = first & 0xFBF0 | value >> 12 & 15 | (value >> 11 & 1) << 10
        struct.pack_into("<2H", image, at, first, second & 0x8F00 | (value >> 8 & 7) << 12 | value & 0xFF)

    return patch


def _thumb_stub(address: int, slot: int) -> bytes:
    # movw r12, low; movt r12, high (the slot's address); ldr.w pc, [r12]
    code = bytearray(struct.pack("<6H", 0xF240, 0x0C00, 0xF2C0, 0x0C00, 0xF8DC, 0xF000))
    _thumb_move(0, False)(memoryview(code), 0, 0, slot)
    _thumb_move(16, False)(memoryview(code), 4, 0, slot)
    return bytes(code)


_THUMB = ElfMachine(
    kinds={
        2: RelocationKind("R_ARM_ABS32", 4, "direct", _thumb_add(relative=False)),
        3: RelocationKind("R_ARM_REL32", 4, "direct", _thumb_add(relative=True)),
        10: RelocationKind("R_ARM_THM_CALL", 4, "call", _thumb_branch),
        30: RelocationKind("R_ARM_THM_JUMP24", 4, "call", _thumb_branch),
        38: RelocationKind("R_ARM_TARGET1", 4, "direct", _thumb_add(relative=False)),
        42: RelocationKind("R_ARM_PREL31", 4, "direct", _thumb_prel31),
        47: RelocationKind("R_ARM_THM_MOVW_ABS_NC", 4, "direct", _thumb_move(0, False)),
        48: RelocationKind("R_ARM_THM_MOVT_ABS", 4, "direct", _thumb_move(16, False)),
        49: RelocationKind("R_ARM_THM_MOVW_PREL_NC", 4, "direct", _thumb_move(0, True)),
        50: RelocationKind("R_ARM_THM_MOVT_PREL", 4, "direct", _thumb_move(16, True)),
        96: RelocationKind("R_ARM_GOT_PREL", 4, "table", _thumb_add(relative=True)),
    },
    ignored=frozenset({0}),
    stub_bytes=12,
    stub=_thumb_stub,
)

MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64, "riscv64": _RISCV64, "riscv32": _RISCV32, "thumb": _THUMB}
