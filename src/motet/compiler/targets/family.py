"""The description of a device family with a code generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, Protocol

from motet.compiler.targets.rates import Rates


class Target(Protocol):
    """A compilation target: a frozen dataclass, `CpuTarget`, `GpuTarget` or a code generator's own. `triple` and
    `requires` are checked by a driver before it loads a variant's code. A target with a `base` extends it by
    instructions for some kernels."""

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
    """`targets` by name, and the names of the default ones, in order of preference. `native` means that the family has
    a target of that name, determined by the compiling machine. `rates` describe its devices for automatic placement,
    `target_rates` those of specific targets. `key` is the option of a device expression that lists targets. `streams`
    is the number of streams that schedules use, for devices that order work by streams.

    `codegen` names the code generator (`codegen/backends.py`): `cpu`, `triton`, or an entry point of the group
    `motet.codegen`.

    `registers` are the modes of the register file that a device expression may request, the default first;
    `sub_groups` the sizes of sub-groups. `canonical` maps other spellings of a target to its name. `always` are targets
    that are added to those requested, as fallbacks.

    `options` are the driver's options that a device expression may contain: `riscv{harts=4}`. `implied` maps values of
    an option to the targets that they imply, unless others are given: `{"vlen": {"256": ("rv64gcv256",)}}`."""

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
    precisions: tuple[str, ...] = ()  # of products of f32, the default first
    streams: int = 1
    registers: tuple[str, ...] = ()
    sub_groups: tuple[str, ...] = ()
    canonical: Callable[[str], str] = str
    always: tuple[str, ...] = ()
    codegen: str = "cpu"

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.targets, *(("native",) if self.native else ()))
