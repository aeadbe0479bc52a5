"""Divides a kernel into launches, and defines the interface of launch classes, for any language of programs.

    match(launch) → plan(found, target) → forms(plan)

`divide` splits a kernel into launches, each of as many stages as some class supports as one. Values written by one
launch and read by a later one are stored in workspaces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

from motet.artifact.expressions import product
from motet.artifact.library import LibraryCall
from motet.artifact.schema import Expr
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Stage, Value, item_bytes
from motet.compiler.targets.gpu import GpuTarget

FoundT = TypeVar("FoundT")
PlanT = TypeVar("PlanT")
FormT = TypeVar("FormT")


@dataclass(frozen=True)
class LaunchPart:
    """Stages that one program runs in order. `read` are the values that later launches read, `buffers` the values that
    are arguments of the program."""

    kernel: Kernel
    stages: tuple[Stage, ...]
    read: AbstractSet[int]
    buffers: tuple[int, ...]
    symbol: str

    @property
    def about(self) -> str:
        return about(self.kernel, self.stages)

    @property
    def seen(self) -> Kernel:
        """The kernel as this launch sees it."""
        return seen_by(self.kernel, self.stages, self.read)

    @property
    def epilogue(self) -> Epilogue | None:
        """The stages after the first, as an epilogue on its only result; None if they are not."""
        main, *rest = self.stages
        return match_epilogue(self.seen, main, rest) if len(main.outputs) == 1 else None

    def is_stored(self, value: int) -> bool:
        """Whether the value is read outside this launch."""
        return self.kernel.values[value].role == "result" or value in self.read


class LaunchClass(ABC, Generic[FoundT, PlanT, FormT]):
    """A class of launches. A kernel of several launches is named after their class with the lowest `rank`."""

    name: ClassVar[str]
    rank: ClassVar[int]

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        """How many of `stages`, from the first on, the class supports as one launch; 0 if other classes should be
        used."""
        return 0

    @abstractmethod
    def match(self, launch: LaunchPart, target: GpuTarget) -> FoundT | None:
        """The description of the launch if it is of this class, else None."""

    @abstractmethod
    def plan(self, found: FoundT, target: GpuTarget) -> PlanT:
        """Decide what the text depends on: sizes of tiles, pieces, warps."""

    @abstractmethod
    def forms(self, plan: PlanT) -> tuple[FormT, ...]:
        """Programs for the launch, best first; none if the next class should be used. Raises an exception for
        operations without code."""

    def library(self, plan: PlanT) -> LibraryCall | None:
        """An equivalent library call, if there is one."""
        return None


def divide(kernel: Kernel, classes: Sequence[LaunchClass[FoundT, PlanT, FormT]]) -> list[tuple[Stage, ...]]:
    """The stages of each launch."""
    found: list[tuple[Stage, ...]] = []
    stages = list(kernel.stages)
    while stages:
        count = max(each.count(kernel, stages) for each in classes)
        found.append(tuple(stages[:count]))
        del stages[:count]
    return found


def about(kernel: Kernel, stages: Sequence[Stage]) -> str:
    """A description of the launch's operations for the program's source."""
    text = "; ".join(dict.fromkeys(stage.source for stage in stages if stage.source)) or kernel.name
    return text.replace('"""', "").replace("\\", "/")


def seen_by(kernel: Kernel, stages: Sequence[Stage], read: AbstractSet[int]) -> Kernel:
    """`kernel` as `stages` see it: temporaries of other stages are arguments, their own temporaries in `read` are
    results."""
    own = {access.value for stage in stages for access in stage.outputs}

    def role(i: int, value: Value) -> Value:
        if value.role != "temporary" or (i in own and i not in read):
            return value
        return replace(value, role="result" if i in own else "argument")

    return replace(kernel, values=tuple(role(i, value) for i, value in enumerate(kernel.values)))


def reads(stages: Sequence[Stage]) -> set[int]:
    """The values read by `stages`."""
    found = {access.value for stage in stages for access in stage.inputs}
    return found | {init.value for stage in stages for init in stage.inits if isinstance(init, Access)}


def read_after(launches: Sequence[tuple[Stage, ...]], position: int) -> set[int]:
    """The values read by the launches after `position`."""
    return reads([stage for other in launches[position + 1 :] for stage in other])


def workspaces(kernel: Kernel, launches: Sequence[tuple[Stage, ...]]) -> dict[int, Expr]:
    """The temporaries that are passed between launches, with their sizes in bytes."""
    found: dict[int, Expr] = {}
    for position, launch in enumerate(launches):
        later = read_after(launches, position)
        for stage in launch:
            for access in stage.outputs:
                value = kernel.values[access.value]
                if value.role == "temporary" and access.value in later:
                    found[access.value] = product((item_bytes(value.dtype), *value.shape))
    return found
