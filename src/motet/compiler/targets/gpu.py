"""GPU targets: the properties of each architecture that code generators need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Precision = Literal["ieee", "tf32", "tf32x3"]
PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32", "tf32x3")

_SUB_GROUPS = "sub-groups-of-"  # a feature of devices


@dataclass(frozen=True)
class XpuDevice:
    """What the code generator needs of an Intel GPU. `device` is its name for Intel's offline compiler; empty for
    SPIR-V that any device takes. `sub_groups` are the numbers of work-items of a sub-group, the preferred one first;
    `work_group` is the maximum of a work-group whose work-items have 128 registers of `register_bytes` bytes each, for
    a whole sub-group. `register_files` are the numbers of registers that a kernel may have, with work-groups half as
    large for twice as many; `isa` is the number of the instruction set in Intel's assembler. `registers` is the mode
    that the user chose, `sub_group` the number of work-items, 0 for the compiler's choice."""

    device: str
    sub_groups: tuple[int, ...]
    work_group: int
    register_bytes: int
    matrix_engine: bool = False
    block_loads: bool = False
    bfloat16: bool = False
    fp64: bool = True
    register_files: tuple[int, ...] = (128, 256)
    isa: int = 0
    registers: str = "default"
    sub_group: int = 0


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
    needs: tuple[str, ...] = ()  # what a device must have, if not this architecture
    xpu: XpuDevice | None = None

    @property
    def requires(self) -> tuple[str, ...]:
        return self.needs or (self.name,)

    @property
    def is_cuda(self) -> bool:
        return self.family == "cuda"


def with_sub_group(target: GpuTarget, size: int) -> GpuTarget:
    """`target` with sub-groups of `size` work-items as the user chose. SPIR-V for any device then needs them."""
    if target.xpu is None:
        return target
    needs = tuple(f"{_SUB_GROUPS}{size}" if need.startswith(_SUB_GROUPS) else need for need in target.needs)
    return replace(target, needs=needs, xpu=replace(target.xpu, sub_group=size))
