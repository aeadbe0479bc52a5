"""A family of devices that code can be made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, Protocol

from motet.compiler.placement.rates import Rates


class Target(Protocol):
    """What code is made for: a frozen dataclass, `CpuTarget`, `GpuTarget` or a code generator's own. `triple` and
    `requires` are what a driver asks of a variant before it loads its code. A target with a `base` is that one with
    instructions for some kernels more."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def triple(self) -> str: ...

    @property
    def requires(self) -> tuple[str, ...]: ...

    @property
    def base(self) -> str: ...


@dataclass(frozen=True)
class Family:
    """`targets` by name, and the names of those that code is made for by default, the preferred one first.
    `native` says that there is a target of that name, which the machine that compiles is asked for. `rates` are what
    its devices can do, for automatic placement, `target_rates` what those of a target can, where it matters. `key` is
    the option of a device expression that lists targets.
    `streams` is how many the commands of a schedule are spread over, for devices that order work by streams.

    `codegen` names the code generator (`codegen/backends.py`): `cpu`, `triton`, or one of the entry points of the group
    `motet.codegen`.

    `options` are those of its driver that a device expression may give: `riscv{harts=4}`. `implied` says which targets
    the value of an option stands for, where it says no other: `{"vlen": {"256": ("rv64gcv256",)}}`."""

    name: str
    targets: Mapping[str, Target] = field(default_factory=dict[str, Target])
    defaults: tuple[str, ...] = ()
    native: bool = False
    rates: Rates | None = None
    target_rates: Mapping[str, Rates] = field(default_factory=dict[str, Rates])
    options: tuple[str, ...] = ()
    implied: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict[str, Mapping[str, tuple[str, ...]]]
    )

    key: str = "cpu"
    precisions: tuple[str, ...] = ()  # how products of f32 may be calculated, the default one first
    streams: int = 1
    codegen: str = "cpu"

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.targets, *(("native",) if self.native else ()))
