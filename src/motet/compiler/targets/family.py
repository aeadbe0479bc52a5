"""The description of a family of devices with a code generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, Protocol

from motet.compiler.placement.rates import Rates


class Target(Protocol):
    """A compilation target: a frozen dataclass, `CpuTarget`, `GpuTarget` or a code generator's own. A driver checks
    `triple` and `requires` of a variant before it loads its code. A target with a `base` extends it by instructions for
    some kernels."""

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
    """`targets` by name, and the names of the default ones, the preferred one first. `native` means that there is a
    target of that name, determined from the compiling machine. `rates` are those of its devices, for automatic
    placement, `target_rates` those of a target if they differ. `key` is the option of a device expression that lists
    targets. `streams` is the number of streams of a schedule, for devices that order work by streams.

    `codegen` names the code generator (`codegen/backends.py`): `cpu`, `triton`, or an entry point of the group
    `motet.codegen`.

    `options` are those of its driver that a device expression may give: `riscv{harts=4}`. `implied` maps the value of
    an option to the targets that it implies if none are listed: `{"vlen": {"256": ("rv64gcv256",)}}`."""

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
    precisions: tuple[str, ...] = ()  # of products of f32, the default one first
    streams: int = 1
    codegen: str = "cpu"

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.targets, *(("native",) if self.native else ()))
