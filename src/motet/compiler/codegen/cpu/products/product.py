"""Products of bytes and of bf16 numbers, as `byte_reading.py` and `bfloat_reading.py` read them from kernels."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.cpu.products.bfloat_image import CopiedImage
from motet.compiler.codegen.cpu.products.byte_image import ByteImage
from motet.compiler.codegen.cpu.products.instructions import Arithmetic, PackedNumbers, Way, arithmetic_of
from motet.compiler.kernels.contraction import Contraction, Loop
from motet.compiler.kernels.schedule import BfloatProductSchedule, IntegerProductSchedule
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess
from motet.compiler.targets.cpu import CpuTarget

ProductSchedule = IntegerProductSchedule | BfloatProductSchedule


@dataclass(frozen=True)
class Factor:
    """An operand: input `input` minus `zero`, which is a number, or an access to a tensor and the casts of it."""

    input: int = 0
    unsigned: bool = False
    zero: StridedAccess | int = 0
    zero_casts: tuple[str, ...] = ()


@dataclass(frozen=True)
class LineProduct:
    """A product of lines of `numbers` along K. `c.a` and `c.b` are the accesses of the inputs of `a` and `b`. With an
    `image`, one of them is gathered from its windows, or A is an access to its copy."""

    c: Contraction
    numbers: PackedNumbers
    a: Factor = Factor()
    b: Factor = Factor()
    image: ByteImage | CopiedImage | None = None

    @property
    def zeros(self) -> list[StridedAccess]:
        return [factor.zero for factor in (self.a, self.b) if isinstance(factor.zero, StridedAccess)]

    @property
    def rows(self) -> Extent:
        return self.c.m[0] if self.c.m else ONE

    @property
    def inner(self) -> Loop:
        """The innermost loop along K."""
        return self.c.depth[-1]

    @property
    def gathered(self) -> ByteImage | None:
        """The image whose lines tasks gather."""
        return self.image if isinstance(self.image, ByteImage) else None

    @property
    def copied(self) -> CopiedImage | None:
        """The image that is copied as a whole."""
        return self.image if isinstance(self.image, CopiedImage) else None

    def arithmetic(self, target: CpuTarget, way: Way | None = None) -> Arithmetic | None:
        """The arithmetic of `target` by `way`, or by its fastest kind of instructions; None if it has none."""
        return arithmetic_of(target, self.numbers, (self.a.unsigned, self.b.unsigned), way)
