"""What every class of code generator for CPUs consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from motet.compiler.codegen.kernel_code import KernelCode
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.schedule import KernelSchedule, Reason
from motet.compiler.targets.cpu import CpuTarget

Found = TypeVar("Found")
Schedule = TypeVar("Schedule", bound=KernelSchedule)


@dataclass(frozen=True)
class KernelClass(Generic[Found, Schedule]):
    """`match` reads a kernel as what the class makes code for, None if it is something else. `choose` returns the
    schedule that its heuristics think fastest, None if the class is not for it. `check` returns why another schedule
    is not legal; `emit` makes code of a legal one, or returns None where the class lacks code for an
    operation of the kernel."""

    schedule: type[Schedule]
    match: Callable[[Kernel, CpuTarget], Found | None]
    choose: Callable[[Found, CpuTarget], Schedule | None]
    check: Callable[[Found, Schedule, CpuTarget], Sequence[Reason]]
    emit: Callable[[Found, Schedule, CpuTarget], KernelCode | None]

    @property
    def name(self) -> str:
        """What `class` is in its schedules."""
        return str(self.schedule.__struct_config__.tag)

    def generate(self, kernel: Kernel, target: CpuTarget) -> KernelCode | None:
        """Code by the schedule that the heuristics choose, None if the class is not for `kernel`."""
        found = self.match(kernel, target)
        schedule = None if found is None else self.choose(found, target)
        return None if found is None or schedule is None else self.emit(found, schedule, target)
