"""Launches of a kernel, and the contract of their classes, whatever language programs are written in.

    match(launch) → plan(found, target) → forms(plan)

`divide` cuts a kernel into launches, as long as some class takes so many stages as one. What one launch makes and a
later one reads is stored in a workspace.
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
    """Stages that one program runs, one after the other. `read` are the values that later launches read; `buffers` the
    values that the program gets."""

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
        """What the stages after the first do on its one result."""
        main, *rest = self.stages
        return match_epilogue(self.seen, main, rest) if len(main.outputs) == 1 else None

    def is_stored(self, value: int) -> bool:
        """Whether anything outside this launch reads what it makes."""
        return self.kernel.values[value].role == "result" or value in self.read


class LaunchClass(ABC, Generic[FoundT, PlanT, FormT]):
    """One way to write launches. A kernel of several launches is called after the class with the lowest `rank`."""

    name: ClassVar[str]
    rank: ClassVar[int]

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        """How many of `stages`, from the first on, it takes as one launch; 0 where that is left to other classes."""
        return 0

    @abstractmethod
    def match(self, launch: LaunchPart, target: GpuTarget) -> FoundT | None:
        """What the launch is, if it is of this class."""

    @abstractmethod
    def plan(self, found: FoundT, target: GpuTarget) -> PlanT:
        """What is to be decided before any text is written: sizes of tiles, pieces, warps."""

    @abstractmethod
    def forms(self, plan: PlanT) -> tuple[FormT, ...]:
        """Programs for the launch, the preferred one first; none where the next class is to take it. Raises for what
        there is no code for."""

    def library(self, plan: PlanT) -> LibraryCall | None:
        """A library's call that does the same."""
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
    """The operations of a launch, as the source has them."""
    text = "; ".join(dict.fromkeys(stage.source for stage in stages if stage.source)) or kernel.name
    return text.replace('"""', "").replace("\\", "/")


def seen_by(kernel: Kernel, stages: Sequence[Stage], read: AbstractSet[int]) -> Kernel:
    """`kernel` as `stages` see it: temporaries of others are arguments, their own ones in `read` are results."""
    own = {access.value for stage in stages for access in stage.outputs}

    def role(i: int, value: Value) -> Value:
        if value.role != "temporary" or (i in own and i not in read):
            return value
        return replace(value, role="result" if i in own else "argument")

    return replace(kernel, values=tuple(role(i, value) for i, value in enumerate(kernel.values)))


def reads(stages: Sequence[Stage]) -> set[int]:
    """The values that `stages` read."""
    found = {access.value for stage in stages for access in stage.inputs}
    return found | {init.value for stage in stages for init in stage.inits if isinstance(init, Access)}


def read_after(launches: Sequence[tuple[Stage, ...]], position: int) -> set[int]:
    """The values that the launches behind the one at `position` read."""
    return reads([stage for other in launches[position + 1 :] for stage in other])


def workspaces(kernel: Kernel, launches: Sequence[tuple[Stage, ...]]) -> dict[int, Expr]:
    """The temporaries that one launch makes and another reads, with their bytes."""
    found: dict[int, Expr] = {}
    for position, launch in enumerate(launches):
        later = read_after(launches, position)
        for stage in launch:
            for access in stage.outputs:
                value = kernel.values[access.value]
                if value.role == "temporary" and access.value in later:
                    found[access.value] = product((item_bytes(value.dtype), *value.shape))
    return found
