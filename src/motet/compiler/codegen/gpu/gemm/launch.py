"""The description of a launch as a contraction."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix, matrix_of
from motet.compiler.codegen.gpu.tasks import Loop, LoopTask
from motet.compiler.kernels.strides import StridedAccess

_LEAVING = ("f16", "bf16", "f32", "i32", "i8", "f8E4M3FN", "f8E5M2")  # dtypes of results that TMA stores


@dataclass(frozen=True)
class ContractionLaunch:
    """A launch read as a contraction; `left` and `right` are the inputs with M and N. `factor` is the dtype in which
    operands are multiplied (`tf32` and `tf32x3` for f32 of that precision), `sum` the dtype of the sum."""

    task: LoopTask
    left: StridedAccess
    right: StridedAccess
    factor: str
    sum: str
    batch: tuple[Loop, ...]
    m: tuple[Loop, ...]
    n: tuple[Loop, ...]
    k: tuple[Loop, ...]


def leaving(c: ContractionLaunch) -> Matrix | None:
    """The result as a matrix that TMA can store; None if it cannot."""
    places = [place for place in c.task.stored.values() if place.dtype in _LEAVING]
    found = (matrix_of(place, c.m, c.n, c.batch) for place in places)
    return next((matrix for matrix in found if matrix is not None), None)
