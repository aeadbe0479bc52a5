"""GPU targets: the properties of each architecture that code generators need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["ieee", "tf32", "tf32x3"]
PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32", "tf32x3")


@dataclass(frozen=True)
class GpuTarget:
    """A GPU architecture. `shared` is the maximum shared memory of a block in bytes, `registers` the maximum of a
    thread, `processors` the number of SMs of a typical device.

    `architecture` is its name for the code generator; `binary` is the extension of the files that this makes, such as
    Triton's `cubin`, `ptx` and `hsaco`. `ptx` is the version of PTX that is stored instead of machine code, for
    translation by later architectures at load time; 0 for machine code. `precision` is that of f32 products: full, by
    tensor cores from operands rounded to 11 bits, or by tensor cores in three steps, nearly full (Ootomo and Yokota,
    "Recovering single precision accuracy from Tensor Cores", 2022)."""

    name: str
    family: str
    triple: str
    architecture: int | str
    binary: str
    warp: int
    shared: int
    processors: int
    registers: int = 255
    ptx: int = 0
    precision: Precision = "ieee"
    base: str = ""  # GPU targets do not extend one another

    @property
    def requires(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def is_cuda(self) -> bool:
        return self.family == "cuda"
