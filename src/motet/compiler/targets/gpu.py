"""GPU targets: what the code generators need to know of each architecture, nothing they could ask at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["ieee", "tf32", "tf32x3"]
PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32", "tf32x3")


@dataclass(frozen=True)
class GpuTarget:
    """An architecture. `shared` is what one block may have of the memory that its threads share, in bytes;
    `registers` what one thread may have; `processors` how many blocks a typical device runs side by side.

    `architecture` is what its code generator calls it; `binary` names the files that this makes, such as `cubin`, `ptx`
    and `hsaco` of Triton's. `ptx` is the version of PTX that is kept instead of machine code, which
    later architectures translate when they load it; 0 for machine code. `precision` says how products of f32 are
    calculated: in full, by tensor cores from factors rounded to 11 bits, or by them in three steps, which is nearly
    in full (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022)."""

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
    base: str = ""  # no target of this kind extends another

    @property
    def requires(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def is_cuda(self) -> bool:
        return self.family == "cuda"
