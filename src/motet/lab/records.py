"""Records of evaluations, the rows of the database and the lines of its exported files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from motet.version import VERSION

if TYPE_CHECKING:
    from motet.compiler.kernels.kernel import Kernel


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One evaluation of a schedule. `kernel`, `target`, `machine` and `motet` are its key; `form` is equal for kernels
    that differ in their extents only. `seconds` is the fastest sample, None if the evaluation failed, as `error` says.
    `origin` is the strategy, or the tool, that proposed the schedule, and `trial` its number in the search."""

    kernel: str
    target: str
    machine: str
    schedule: dict[str, Any]
    motet: str = VERSION
    seconds: float | None = None
    samples: list[float] = []
    counters: dict[str, float | str] = {}
    code_size: int = 0
    validated: bool = False
    error: str = ""
    origin: str = ""
    trial: int = 0
    subject: str = ""
    name: str = ""
    about: str = ""
    form: str = ""
    extents: list[int] = []
    dtype: str = ""
    flops: int = 0
    bytes: int = 0
    threads: int = 0
    when: float = 0.0

    @property
    def identity(self) -> str:
        """Equal for records of one schedule of one kernel on one machine."""
        content = [self.kernel, self.target, self.machine, self.motet, canonical(self.schedule)]
        return hashlib.sha256("\0".join(content).encode()).hexdigest()[:32]


def canonical(schedule: dict[str, Any]) -> str:
    """A schedule as text that is equal for equal schedules."""
    return msgspec.json.encode(schedule, order="sorted").decode()


def extents_of(kernel: Kernel) -> list[int]:
    """The extents of the largest stage, unknown ones as 0."""
    sizes: Sequence[int | str] = max((stage.sizes for stage in kernel.stages), key=len, default=())
    return [size if isinstance(size, int) else 0 for size in sizes]


def dtype_of(kernel: Kernel) -> str:
    """The dtype of the first argument."""
    return kernel.values[0].dtype if kernel.values else ""


def form_of(kernel: Kernel) -> str:
    """A name that kernels share if they differ in their extents only."""
    stages = [
        (stage.iterators, [(each.value, len(each.map)) for each in (*stage.inputs, *stage.outputs)],
         [(each.op, each.operands, each.dtype, each.predicate) for each in stage.body], stage.yields)
        for stage in kernel.stages
    ]
    values = [(len(value.shape), value.dtype, value.role, value.order) for value in kernel.values]
    return hashlib.sha256(repr((stages, values)).encode()).hexdigest()[:16]
