"""The interface of a class of kernels for CPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import KernelSchedule, Reason
from motet.compiler.targets.cpu import CpuTarget

Found = TypeVar("Found")
Schedule = TypeVar("Schedule", bound=KernelSchedule)


@dataclass(frozen=True)
class KernelClass(Generic[Found, Schedule]):
    """A class of kernels. `match` reads a kernel as the class's description, or returns None if the class does not
    support it. `choose` returns the schedule that its heuristics rank first, or None if the class should not be used.
    `check` returns why a given schedule is not legal. `emit` generates code for a legal schedule, or returns None if
    the class has no code for an operation of the kernel."""

    schedule: type[Schedule]
    match: Callable[[Kernel, CpuTarget], Found | None]
    choose: Callable[[Found, CpuTarget], Schedule | None]
    check: Callable[[Found, Schedule, CpuTarget], Sequence[Reason]]
    emit: Callable[[Found, Schedule, CpuTarget], KernelCode | None]

    @property
    def name(self) -> str:
        """The value of `class` in its schedules."""
        return str(self.schedule.__struct_config__.tag)

    def generate(self, kernel: Kernel, target: CpuTarget) -> KernelCode | None:
        """Code by the schedule that the heuristics choose; None if the class is not used for `kernel`."""
        found = self.match(kernel, target)
        schedule = None if found is None else self.choose(found, target)
        return None if found is None or schedule is None else self.emit(found, schedule, target)
