"""GPU targets: static properties of each architecture that code generators need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["ieee", "tf32", "tf32x3"]
PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32", "tf32x3")


@dataclass(frozen=True)
class GpuTarget:
    """An architecture. `shared` is the largest shared memory of a block in bytes; `registers` the largest number of
    registers of a thread; `processors` the number of SMs or compute units of a typical device.

    `architecture` is its name in the code generator; `binary` names the kind of files that this writes, such as
    Triton's `cubin`, `ptx` and `hsaco`. `ptx` is the version of PTX that is kept instead of machine code, for later
    architectures to translate when they load it; 0 for machine code. `precision` is that of products of f32: exact f32,
    tensor cores with operands rounded to 11 bits, or tensor cores in three steps, which is nearly exact (Ootomo and
    Yokota, "Recovering single precision accuracy from Tensor Cores", 2022)."""

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
