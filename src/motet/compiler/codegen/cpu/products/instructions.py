"""The instructions for products of bytes and of bf16 numbers, which sum the products of several neighbours along K.

Lines along K are padded with zeros to whole steps of AMX, 64 bytes. A is stored line by line (bytes as 16-bit numbers
if only those can be multiplied), B in blocks of 16 columns, `group` numbers along K of one column next to each other,
[block][K / group][16][group], which all kinds of instructions read. `ROWS` lists them:

    tiles   AMX: `tdpb..d` and `tdpbf16ps`, 16 rows x 16 columns x 64 bytes of K, any signs
    dots    AVX-512 VNNI or AVX-VNNI: `vpdpbusd`, four products a lane, unsigned by signed. If both operands have the
            same sign, A is read with its top bit flipped, and 128 times the columns' sums corrects the result.
            AVX-512 BF16: `vdpbf16ps`, two products a lane
    pairs   `vpmaddwd`, two products a lane of bytes widened to 16 bits; elsewhere than on x86 two widening products,
            such as NEON's `smlal`. A block uses twice the registers, whose neighbouring lanes are added at the end

Sums of bytes wrap around as i32, so that all kinds give identical results. Those of bf16 numbers are rounded to the
nearest f32 one by one, and take subnormal operands and results for zeros (Intel 64 and IA-32 Architectures Software
Developer's Manual, volume 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F32, I8, I16, I32, I64
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.targets.cpu import CpuTarget

BLOCK = 16  # columns that are packed together
LINES = 64  # packed by one task, and gathered at a time

Way = Literal["tiles", "dots", "pairs"]


class _BrainType(ir.Type):
    """LLVM's `bfloat`, which llvmlite does not define."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BrainType)

    def __hash__(self) -> int:
        return hash(_BrainType)


BRAIN = _BrainType()


@dataclass(frozen=True)
class PackedNumbers:
    """The operands of a product: `group` neighbours along K are stored together, and a line has whole multiples of
    `depth`. In memory each is an `element`, of `bytes` bytes; their products are summed as `total`s, of dtype `sums`.
    `masked` says that levels with instructions for them load parts of vectors."""

    title: str
    group: int
    depth: int
    bytes: int
    element: Any
    sums: Literal["i32", "f32"]
    total: Any
    masked: bool

    def add(self, f: TileFrame, a: ir.Value, b: ir.Value) -> ir.Value:
        """The sum of two sums."""
        return f.fadd(a, b) if self.sums == "f32" else f.add(a, b)


BYTES = PackedNumbers("integer", 4, 64, 1, I8, "i32", I32, False)
BFLOATS = PackedNumbers("bf16", 2, 32, 2, I16, "f32", F32, True)


@dataclass(frozen=True)
class ProductInstruction:
    """A kind of instruction for `numbers`, of levels whose triple begins with `triple`, with `features` and as many
    lanes of 32 bits as one of `lanes`. `multiply` adds the products of registers (for AMX: the numbers of tiles) of A
    and B to sums. Registers have `per_lane` `element`s for each sum, widened from `stored` ones; A is broadcast as
    `word`s, aligned to `align` bytes. With `mixed`, A or B must be unsigned, and the other signed."""

    numbers: PackedNumbers
    way: Way
    triple: str
    features: tuple[str, ...]
    lanes: tuple[int, ...]
    multiply: Callable[[TileFrame, Arithmetic, ir.Value, ir.Value, ir.Value], ir.Value]
    stored: Any = I8
    element: Any = I8
    per_lane: int = 4
    word: Any = I32
    align: int = 1
    mixed: bool = False


@dataclass(frozen=True)
class Arithmetic:
    """How a level multiplies numbers of given signs. `lanes` is the number of 32-bit lanes of its registers."""

    instruction: ProductInstruction
    lanes: int
    a_unsigned: bool = False
    b_unsigned: bool = False

    @property
    def way(self) -> Way:
        return self.instruction.way

    @property
    def numbers(self) -> PackedNumbers:
        return self.instruction.numbers

    @property
    def step(self) -> int:
        """The numbers along K that one instruction multiplies."""
        return self.numbers.depth if self.way == "tiles" else self.numbers.group

    @property
    def flips_a(self) -> bool:
        """Whether A is read with its top bit flipped."""
        return self.instruction.mixed and self.a_unsigned == self.b_unsigned

    @property
    def column_factor(self) -> int:
        """The factor for the sums of B's columns that corrects A's flipped bits."""
        return (128 if self.a_unsigned else -128) if self.flips_a else 0

    @property
    def a_scale(self) -> int:
        """The room of a number of A, in numbers as they are stored."""
        return 1 if self.instruction.stored == self.instruction.element else 2

    @property
    def register(self) -> ir.VectorType:
        """The type of registers of operands."""
        return ir.VectorType(self.instruction.element, self.lanes * self.instruction.per_lane)

    @property
    def halves(self) -> bool:
        """Whether a lane sums half of a group, so that neighbouring lanes are added at the end."""
        return self.instruction.per_lane < self.numbers.group

    @property
    def registers(self) -> int:
        """The number of registers that the sums of one row of a block use."""
        return BLOCK // self.lanes * (2 if self.halves else 1)

    @property
    def of_columns(self) -> Arithmetic:
        """The arithmetic that sums B's columns: vectors multiply them by ones."""
        return self if self.way != "tiles" else Arithmetic(_VPDPBUSD, self.lanes, not self.b_unsigned, self.b_unsigned)


def ways_of(target: CpuTarget, numbers: PackedNumbers) -> tuple[Way, ...]:
    """The kinds of instructions for `numbers` that `target` has, fastest first."""
    return tuple(dict.fromkeys(row.way for row in _rows_of(target, numbers)))


def arithmetic_of(
    target: CpuTarget, numbers: PackedNumbers, signs: tuple[bool, bool] = (False, False), way: Way | None = None
) -> Arithmetic | None:
    """The arithmetic of `target` by `way`, or by its fastest kind of instructions; None if it has none. `signs` says
    whether A and B are unsigned."""
    rows = [row for row in _rows_of(target, numbers) if way in (None, row.way)]
    return Arithmetic(rows[0], target.lanes(32), *signs) if rows else None


def _rows_of(target: CpuTarget, numbers: PackedNumbers) -> list[ProductInstruction]:
    return [
        row for row in ROWS
        if row.numbers is numbers and target.triple.startswith(row.triple) and target.lanes(32) in row.lanes
        and all(map(target.has, row.features))
    ]


def immediate(number: int) -> ir.Value:
    """The number of an AMX tile."""
    return ir.Constant(I8, number)


def _tdpb(f: TileFrame, how: Arithmetic, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    signs = "".join("u" if unsigned else "s" for unsigned in (how.a_unsigned, how.b_unsigned))
    return f.intrinsic(f"llvm.x86.tdpb{signs}d", ir.VoidType(), [total, a, b])


def _tdpbf16ps(f: TileFrame, how: Arithmetic, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return f.intrinsic("llvm.x86.tdpbf16ps", ir.VoidType(), [total, a, b])


def _vpdpbusd(f: TileFrame, how: Arithmetic, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    unsigned, signed = (b, a) if how.b_unsigned else (a, b)
    return f.intrinsic(f"llvm.x86.avx512.vpdpbusd.{how.lanes * 32}", total.type, [total, unsigned, signed])


def _vdpbf16ps(f: TileFrame, how: Arithmetic, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return f.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", total.type, [total, a, b])


def _vpmaddwd(f: TileFrame, how: Arithmetic, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    name = "llvm.x86.avx512.pmaddw.d.512" if how.lanes == 16 else "llvm.x86.avx2.pmadd.wd"
    return f.add(total, f.intrinsic(name, total.type, [a, b]))


def _widening(f: TileFrame, how: Arithmetic, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    for first in (0, 1):
        half = ir.Constant(ir.VectorType(I32, how.lanes), list(range(first, 2 * how.lanes, 2)))
        x, y = (f.sext(f.shuffle_vector(numbers, numbers, half), total.type) for numbers in (a, b))
        total = f.add(total, f.mul(x, y))
    return total


_X86 = "x86_64"
_VPDPBUSD = ProductInstruction(BYTES, "dots", _X86, ("avx512vnni",), (8, 16), _vpdpbusd, mixed=True)
_PAIRS: dict[str, Any] = {"element": I16, "per_lane": 2, "word": I64, "align": 2}
ROWS = (
    ProductInstruction(BYTES, "tiles", _X86, ("amx-int8", "avx512vnni"), (8, 16), _tdpb),
    _VPDPBUSD,
    ProductInstruction(BYTES, "dots", _X86, ("avxvnni",), (8,), _vpdpbusd, mixed=True),
    ProductInstruction(BYTES, "pairs", _X86, (), (8, 16), _vpmaddwd, **_PAIRS),
    ProductInstruction(BYTES, "pairs", "", (), (4, 8, 16, 32), _widening, **_PAIRS),
    ProductInstruction(
        BFLOATS, "tiles", _X86, ("avx512bf16", "amx-bf16"), (16,), _tdpbf16ps, BRAIN, BRAIN, 2),
    ProductInstruction(BFLOATS, "dots", _X86, ("avx512bf16",), (16,), _vdpbf16ps, BRAIN, BRAIN, 2, align=2),
)
