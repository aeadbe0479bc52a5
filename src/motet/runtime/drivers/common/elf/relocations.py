"""Relocations of x86-64, AArch64, RISC-V and Thumb, which patch addresses into code.

Each machine is a table from the relocation's number to its name, the way in which its target is found, the field that
it patches, the formula of the value and the values that the field can hold. Sources: the psABI documents of the
architectures (x86-64 psABI 1.0, ELF for the Arm 64-bit and the Arm Architecture, RISC-V ELF psABI).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

# direct: the symbol itself; call: the symbol, or a stub if it is imported; table: the symbol's slot in the global
# offset table; low: the low part of the distance whose high part another relocation has.
Way = Literal["direct", "call", "table", "low"]
Formula = Callable[[int, int], int]  # of the target's address and the patched place's

_FORMS = {size: struct.Struct(code) for size, code in ((1, "<B"), (2, "<H"), (4, "<I"), (8, "<Q"))}


class OutOfRangeError(Exception):
    """The patched place cannot hold `value`."""

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(value)


class Field:
    """Bits of a little-endian word of `size` bytes. Each part is the lowest bit that it has of a value, the number of
    bits, and the lowest bit in the word."""

    def __init__(self, size: int, parts: tuple[tuple[int, int, int], ...]) -> None:
        self.size = size
        form = _FORMS[size]
        self._read, self._write = form.unpack_from, form.pack_into
        self._parts = [(begin, (1 << bits) - 1, place) for begin, bits, place in parts]
        self._others = (1 << 8 * size) - 1 - sum(mask << place for _, mask, place in self._parts)
        self._lowest = min(begin for begin, _, _ in parts)
        self._sign = 1 << sum(bits for _, bits, _ in parts) - 1

    def put(self, image: memoryview, at: int, value: int) -> None:
        """Replace the field; the other bits of the word stay."""
        word = self._read(image, at)[0] & self._others if self._others else 0
        for begin, mask, place in self._parts:
            word |= (value >> begin & mask) << place
        self._write(image, at, word)

    def get(self, image: memoryview, at: int) -> int:
        """The signed number in the field, whose lowest bit is bit 0."""
        word, value = self._read(image, at)[0], 0
        for begin, mask, place in self._parts:
            value |= (word >> place & mask) << begin - self._lowest
        return (value ^ self._sign) - self._sign


@dataclass(frozen=True)
class RelocationKind:
    """`limits` are the values that the field can hold. `stored`: the addend is in the field. `encode` rearranges the
    bits of the value for the field."""

    name: str
    way: Way
    field: Field
    formula: Formula
    limits: range | None = None
    stored: bool = False
    encode: Callable[[int], int] | None = None

    def patch(self, image: memoryview, at: int, place: int, target: int) -> None:
        """Patch offset `at` of `image`, which will be at the address `place`. Raises OutOfRangeError."""
        value, limits = self.formula(target, place), self.limits
        if self.stored:
            value += self.field.get(image, at)
        if limits is not None and value not in limits:
            raise OutOfRangeError(value)
        self.field.put(image, at, value if self.encode is None else self.encode(value))


@dataclass(frozen=True)
class ElfMachine:
    """A machine's relocations. `stub` is code that jumps to the address in a slot of the global offset table, when
    `slots` are patched: relocations to the slot, each as the offset in the stub, the number and the addend."""

    kinds: dict[int, RelocationKind]
    ignored: frozenset[int]
    stub: bytes
    slots: tuple[tuple[int, int, int], ...]


def _absolute(target: int, place: int) -> int:
    return target


def _negative(target: int, place: int) -> int:
    return -target


def _relative(target: int, place: int) -> int:
    return target - place


def _signed(bits: int, step: int = 1) -> range:
    return range(-(1 << bits - 1), 1 << bits - 1, step)


def _unsigned(bits: int, step: int = 1) -> range:
    return range(0, 1 << bits, step)


def _either(bits: int) -> range:
    """Numbers of `bits` bits with or without a sign."""
    return range(-(1 << bits - 1), 1 << bits)


_B1, _B2, _B4, _B8 = (Field(size, ((0, 8 * size, 0),)) for size in (1, 2, 4, 8))

# -- x86-64 ----------------------------------------------------------------------------------------

_X86_64 = ElfMachine(
    kinds={
        1: RelocationKind("R_X86_64_64", "direct", _B8, _absolute),
        2: RelocationKind("R_X86_64_PC32", "direct", _B4, _relative, _signed(32)),
        4: RelocationKind("R_X86_64_PLT32", "call", _B4, _relative, _signed(32)),
        9: RelocationKind("R_X86_64_GOTPCREL", "table", _B4, _relative, _signed(32)),
        10: RelocationKind("R_X86_64_32", "direct", _B4, _absolute, _unsigned(32)),
        11: RelocationKind("R_X86_64_32S", "direct", _B4, _absolute, _signed(32)),
        12: RelocationKind("R_X86_64_16", "direct", _B2, _absolute, _either(16)),
        13: RelocationKind("R_X86_64_PC16", "direct", _B2, _relative, _signed(16)),
        14: RelocationKind("R_X86_64_8", "direct", _B1, _absolute, _either(8)),
        24: RelocationKind("R_X86_64_PC64", "direct", _B8, _relative, _signed(64)),
        41: RelocationKind("R_X86_64_GOTPCRELX", "table", _B4, _relative, _signed(32)),
        42: RelocationKind("R_X86_64_REX_GOTPCRELX", "table", _B4, _relative, _signed(32)),
    },
    ignored=frozenset({0}),
    stub=b"\xff\x25\0\0\0\0\xcc\xcc",  # jmp [rip + …]
    slots=((2, 2, -4),),
)

# -- AArch64 ---------------------------------------------------------------------------------------


def _pages(target: int, place: int) -> int:
    return (target >> 12) - (place >> 12)


def _in_page(target: int, place: int) -> int:
    return target & 0xFFF


_ADR = Field(4, ((0, 2, 29), (2, 19, 5)))
# An add, and loads of 2 bytes and more, whose offsets are in elements.
_LOW12, _LOW12_2, _LOW12_4, _LOW12_8, _LOW12_16 = (Field(4, ((scale, 12, 10),)) for scale in range(5))
# Distances in instructions.
_BRANCH14, _BRANCH19, _BRANCH26 = (Field(4, ((2, bits, place),)) for bits, place in ((14, 5), (19, 5), (26, 0)))
_MOVE0, _MOVE1, _MOVE2, _MOVE3 = (Field(4, ((begin, 16, 5),)) for begin in (0, 16, 32, 48))

_AARCH64 = ElfMachine(
    kinds={
        257: RelocationKind("R_AARCH64_ABS64", "direct", _B8, _absolute),
        258: RelocationKind("R_AARCH64_ABS32", "direct", _B4, _absolute, _either(32)),
        259: RelocationKind("R_AARCH64_ABS16", "direct", _B2, _absolute, _either(16)),
        260: RelocationKind("R_AARCH64_PREL64", "direct", _B8, _relative, _signed(64)),
        261: RelocationKind("R_AARCH64_PREL32", "direct", _B4, _relative, _signed(32)),
        262: RelocationKind("R_AARCH64_PREL16", "direct", _B2, _relative, _signed(16)),
        263: RelocationKind("R_AARCH64_MOVW_UABS_G0", "direct", _MOVE0, _absolute, _unsigned(16)),
        264: RelocationKind("R_AARCH64_MOVW_UABS_G0_NC", "direct", _MOVE0, _absolute),
        265: RelocationKind("R_AARCH64_MOVW_UABS_G1", "direct", _MOVE1, _absolute, _unsigned(32)),
        266: RelocationKind("R_AARCH64_MOVW_UABS_G1_NC", "direct", _MOVE1, _absolute),
        267: RelocationKind("R_AARCH64_MOVW_UABS_G2", "direct", _MOVE2, _absolute, _unsigned(48)),
        268: RelocationKind("R_AARCH64_MOVW_UABS_G2_NC", "direct", _MOVE2, _absolute),
        269: RelocationKind("R_AARCH64_MOVW_UABS_G3", "direct", _MOVE3, _absolute, _unsigned(64)),
        273: RelocationKind("R_AARCH64_LD_PREL_LO19", "direct", _BRANCH19, _relative, _signed(21, 4)),
        274: RelocationKind("R_AARCH64_ADR_PREL_LO21", "direct", _ADR, _relative, _signed(21)),
        275: RelocationKind("R_AARCH64_ADR_PREL_PG_HI21", "direct", _ADR, _pages, _signed(21)),
        277: RelocationKind("R_AARCH64_ADD_ABS_LO12_NC", "direct", _LOW12, _in_page),
        278: RelocationKind("R_AARCH64_LDST8_ABS_LO12_NC", "direct", _LOW12, _in_page),
        279: RelocationKind("R_AARCH64_TSTBR14", "direct", _BRANCH14, _relative, _signed(16, 4)),
        280: RelocationKind("R_AARCH64_CONDBR19", "direct", _BRANCH19, _relative, _signed(21, 4)),
        282: RelocationKind("R_AARCH64_JUMP26", "call", _BRANCH26, _relative, _signed(28, 4)),
        283: RelocationKind("R_AARCH64_CALL26", "call", _BRANCH26, _relative, _signed(28, 4)),
        284: RelocationKind("R_AARCH64_LDST16_ABS_LO12_NC", "direct", _LOW12_2, _in_page, _unsigned(12, 2)),
        285: RelocationKind("R_AARCH64_LDST32_ABS_LO12_NC", "direct", _LOW12_4, _in_page, _unsigned(12, 4)),
        286: RelocationKind("R_AARCH64_LDST64_ABS_LO12_NC", "direct", _LOW12_8, _in_page, _unsigned(12, 8)),
        299: RelocationKind("R_AARCH64_LDST128_ABS_LO12_NC", "direct", _LOW12_16, _in_page, _unsigned(12, 16)),
        311: RelocationKind("R_AARCH64_ADR_GOT_PAGE", "table", _ADR, _pages, _signed(21)),
        312: RelocationKind("R_AARCH64_LD64_GOT_LO12_NC", "table", _LOW12_8, _in_page, _unsigned(12, 8)),
        314: RelocationKind("R_AARCH64_PLT32", "call", _B4, _relative, _signed(32)),
    },
    ignored=frozenset({0, 256}),
    # adrp x16, slot; ldr x16, [x16, slot's place in its page]; br x16; nop
    stub=struct.pack("<4I", 0x90000010, 0xF9400210, 0xD61F0200, 0xD503201F),
    slots=((0, 275, 0), (4, 286, 0)),
)

# -- RISC-V ----------------------------------------------------------------------------------------


def _rounded(value: int) -> int:
    """The upper bits rounded so that the signed lower 12 bits complete them."""
    return value + 0x800 & ~0xFFF | value & 0xFFF


_HIGH20 = Field(4, ((12, 20, 12),))
_LOW12_I, _LOW12_S = Field(4, ((0, 12, 20),)), Field(4, ((5, 7, 25), (0, 5, 7)))
_CALL = Field(8, ((12, 20, 12), (0, 12, 52)))  # auipc, and an instruction with an immediate of 12 bits
_BRANCH = Field(4, ((12, 1, 31), (5, 6, 25), (1, 4, 8), (11, 1, 7)))
JUMP = Field(4, ((20, 1, 31), (1, 10, 21), (11, 1, 20), (12, 8, 12)))
_SHORT_BRANCH = Field(2, ((8, 1, 12), (3, 2, 10), (6, 2, 5), (1, 2, 3), (5, 1, 2)))
_SHORT_JUMP = Field(
    2, ((11, 1, 12), (4, 1, 11), (8, 2, 9), (10, 1, 8), (6, 1, 7), (7, 1, 6), (1, 3, 3), (5, 1, 2))
)
_SIX = Field(1, ((0, 6, 0),))
_ROUNDED = range(-(1 << 31) - 0x800, (1 << 31) - 0x800)

_RISCV64 = ElfMachine(
    kinds={
        1: RelocationKind("R_RISCV_32", "direct", _B4, _absolute, _either(32)),
        2: RelocationKind("R_RISCV_64", "direct", _B8, _absolute),
        16: RelocationKind("R_RISCV_BRANCH", "direct", _BRANCH, _relative, _signed(13)),
        17: RelocationKind("R_RISCV_JAL", "call", JUMP, _relative, _signed(21)),
        18: RelocationKind("R_RISCV_CALL", "call", _CALL, _relative, _ROUNDED, encode=_rounded),
        19: RelocationKind("R_RISCV_CALL_PLT", "call", _CALL, _relative, _ROUNDED, encode=_rounded),
        20: RelocationKind("R_RISCV_GOT_HI20", "table", _HIGH20, _relative, _ROUNDED, encode=_rounded),
        23: RelocationKind("R_RISCV_PCREL_HI20", "direct", _HIGH20, _relative, _ROUNDED, encode=_rounded),
        24: RelocationKind("R_RISCV_PCREL_LO12_I", "low", _LOW12_I, _absolute),
        25: RelocationKind("R_RISCV_PCREL_LO12_S", "low", _LOW12_S, _absolute),
        26: RelocationKind("R_RISCV_HI20", "direct", _HIGH20, _absolute, _ROUNDED, encode=_rounded),
        27: RelocationKind("R_RISCV_LO12_I", "direct", _LOW12_I, _absolute),
        28: RelocationKind("R_RISCV_LO12_S", "direct", _LOW12_S, _absolute),
        33: RelocationKind("R_RISCV_ADD8", "direct", _B1, _absolute, stored=True),
        34: RelocationKind("R_RISCV_ADD16", "direct", _B2, _absolute, stored=True),
        35: RelocationKind("R_RISCV_ADD32", "direct", _B4, _absolute, stored=True),
        36: RelocationKind("R_RISCV_ADD64", "direct", _B8, _absolute, stored=True),
        37: RelocationKind("R_RISCV_SUB8", "direct", _B1, _negative, stored=True),
        38: RelocationKind("R_RISCV_SUB16", "direct", _B2, _negative, stored=True),
        39: RelocationKind("R_RISCV_SUB32", "direct", _B4, _negative, stored=True),
        40: RelocationKind("R_RISCV_SUB64", "direct", _B8, _negative, stored=True),
        44: RelocationKind("R_RISCV_RVC_BRANCH", "direct", _SHORT_BRANCH, _relative, _signed(9)),
        45: RelocationKind("R_RISCV_RVC_JUMP", "direct", _SHORT_JUMP, _relative, _signed(12)),
        52: RelocationKind("R_RISCV_SUB6", "direct", _SIX, _negative, stored=True),
        53: RelocationKind("R_RISCV_SET6", "direct", _SIX, _absolute),
        54: RelocationKind("R_RISCV_SET8", "direct", _B1, _absolute),
        55: RelocationKind("R_RISCV_SET16", "direct", _B2, _absolute),
        56: RelocationKind("R_RISCV_SET32", "direct", _B4, _absolute),
        57: RelocationKind("R_RISCV_32_PCREL", "direct", _B4, _relative, _signed(32)),
        59: RelocationKind("R_RISCV_PLT32", "call", _B4, _relative, _signed(32)),
    },
    # ALIGN and RELAX allow the linker to shrink code, which is not done: the padding remains as no-operations.
    ignored=frozenset({0, 43, 51}),
    stub=struct.pack("<4I", 0x00000E17, 0x000E3E03, 0x000E0067, 0x00000013),  # auipc t3; ld t3, slot(t3); jr t3; nop
    slots=((0, 19, 0),),
)

_RISCV32 = replace(_RISCV64, stub=struct.pack("<4I", 0x00000E17, 0x000E2E03, 0x000E0067, 0x00000013))  # with lw

# -- Thumb, whose addends are in the code --------------------------------------------------------------


def _thumb_distance(target: int, place: int) -> int:
    """The distance of bl or b.w, whose addend is −4, the pipeline's."""
    return (target & ~1) - place - 4


def _mixed(value: int) -> int:
    """Bits 23 and 22 as bl and b.w have them: equal to the sign if they were 1."""
    return value ^ 0xC00000 if value >= 0 else value


_THUMB_BRANCH = Field(4, ((24, 1, 10), (12, 10, 0), (23, 1, 29), (22, 1, 27), (1, 11, 16)))
_MOVW, _MOVT = (
    Field(4, ((low + 12, 4, 0), (low + 11, 1, 10), (low + 8, 3, 28), (low, 8, 16))) for low in (0, 16)
)

_THUMB = ElfMachine(
    kinds={
        2: RelocationKind("R_ARM_ABS32", "direct", _B4, _absolute, stored=True),
        3: RelocationKind("R_ARM_REL32", "direct", _B4, _relative, stored=True),
        10: RelocationKind("R_ARM_THM_CALL", "call", _THUMB_BRANCH, _thumb_distance, _signed(25), encode=_mixed),
        30: RelocationKind("R_ARM_THM_JUMP24", "call", _THUMB_BRANCH, _thumb_distance, _signed(25), encode=_mixed),
        38: RelocationKind("R_ARM_TARGET1", "direct", _B4, _absolute, stored=True),
        42: RelocationKind("R_ARM_PREL31", "direct", Field(4, ((0, 31, 0),)), _relative, stored=True),
        47: RelocationKind("R_ARM_THM_MOVW_ABS_NC", "direct", _MOVW, _absolute, stored=True),
        48: RelocationKind("R_ARM_THM_MOVT_ABS", "direct", _MOVT, _absolute, stored=True),
        49: RelocationKind("R_ARM_THM_MOVW_PREL_NC", "direct", _MOVW, _relative, stored=True),
        50: RelocationKind("R_ARM_THM_MOVT_PREL", "direct", _MOVT, _relative, stored=True),
        96: RelocationKind("R_ARM_GOT_PREL", "table", _B4, _relative, stored=True),
    },
    ignored=frozenset({0}),
    # movw r12, low; movt r12, high (the slot's address); ldr.w pc, [r12]
    stub=struct.pack("<6H", 0xF240, 0x0C00, 0xF2C0, 0x0C00, 0xF8DC, 0xF000),
    slots=((0, 47, 0), (4, 48, 0)),
)

MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64, "riscv64": _RISCV64, "riscv32": _RISCV32, "thumb": _THUMB}
