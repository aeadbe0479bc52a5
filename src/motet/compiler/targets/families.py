"""Finds the device families that have code generators, with their targets and defaults.

A target's full name is its family, a colon and its name in that family: `riscv:rv64gcv`; targets of the host have no
prefix: `x86-64-v4`. Other distributions add families by entry points of the group `motet.targets`, each of which names
a `Family`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata

from motet.compiler.targets.cpu import CPU_TARGETS, DEFAULT_TARGETS, X86_64_V3, X86_64_V4, CpuTarget
from motet.compiler.targets.cuda import CUDA
from motet.compiler.targets.embedded import EMBEDDED
from motet.compiler.targets.family import Family, Target
from motet.compiler.targets.gpu import GpuTarget, with_sub_group
from motet.compiler.targets.hip import HIP
from motet.compiler.targets.intel import INTEL
from motet.compiler.targets.opencl import OPENCL
from motet.compiler.targets.riscv import RISCV
from motet.cpu_features import host_features
from motet.errors import OptionError
from motet.plug_ins import plug_ins

GROUP = "motet.targets"
HOST = "host"
DEFAULT_CPU = "MOTET_CPU"  # environment variable
PRECISION, REGISTERS, SUB_GROUP = "precision", "registers", "subgroup"


def families() -> dict[str, Family]:
    """All families by name; those of other distributions that cannot be loaded are omitted."""
    known = built_in_families()
    for entry in plug_ins(GROUP).values():
        if entry.name not in known and isinstance(found := _load(entry), Family):
            known[entry.name] = found
    return known


def built_in_families() -> dict[str, Family]:
    """The families of this distribution by name, which others cannot replace."""
    return {
        HOST: Family(HOST, CPU_TARGETS, default_levels(), native=True, options=("threads", "cores")),
        "null": Family(
            "null", {t.name: t for t in (X86_64_V4, X86_64_V3)}, (X86_64_V3.name,),
            options=("latency", "bandwidth", "memory-bandwidth", "memory", "queues"),
        ),
        "riscv": RISCV,
        "embedded": EMBEDDED,
        "opencl": OPENCL,
        "cuda": CUDA,
        "hip": HIP,
        "intel": INTEL,
    }


def default_levels() -> tuple[str, ...]:
    """The CPU levels for which programs are compiled that request none, in order of preference: those in `MOTET_CPU`,
    joined by `+` as in a device expression, else those of the host's kind. Raises OptionError for an unknown one."""
    given = os.environ.get(DEFAULT_CPU)
    names = tuple(part.strip() for part in given.split("+")) if given else DEFAULT_TARGETS
    for name in names:
        if name not in (known := (*CPU_TARGETS, "native")):
            raise OptionError(f"{DEFAULT_CPU}={given}: no level {name or '(empty)'}; available: {', '.join(known)}")
    return names


def own_level() -> CpuTarget | None:
    """The best default CPU level that this machine has; None if it has none."""
    levels = (CPU_TARGETS[name] for name in DEFAULT_TARGETS)
    return next((level for level in levels if set(level.requires) <= host_features()), None)


def families_with_code() -> list[str]:
    """The names of the families that have code generators."""
    return [name for name, family in families().items() if family.targets]


def broken_families() -> dict[str, str]:
    """The families of other distributions that cannot be loaded, with the reason."""
    loaded = {name: _load(entry) for name, entry in plug_ins(GROUP).items()}
    return {name: found for name, found in loaded.items() if isinstance(found, str)}


def _load(entry: metadata.EntryPoint) -> Family | str:
    """The family named by an entry point, or why it is not a family."""
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # a plug-in may fail in any way, which must not affect the others
        return f"target family {entry.value!r}: {type(error).__name__}: {error}"
    if not isinstance(found, Family):
        return f"target family {entry.value!r}: an object of type {type(found).__name__}; expected a Family"
    return found


def target_names(family: str, options: Mapping[str, str], where: str) -> list[str]:
    """The full names of the targets that a device expression requests: those listed by `cpu` (`arch` for GPUs), joined
    by `+`, in order of preference, else those implied by another option, else the defaults; with the precision, the
    mode of registers and the size of sub-groups after slashes, unless they are the defaults. Raises OptionError;
    empty for an unknown family."""
    known = families().get(family)
    if known is None:
        return []
    modes = {PRECISION: known.precisions, REGISTERS: known.registers, SUB_GROUP: known.sub_groups}
    own = (known.key, *(option for option, values in modes.items() if values))
    for option in options:
        if option not in own and option not in known.options:
            listing = ", ".join((*own, *known.options))
            raise OptionError(f"device {where}: option {option} is unknown; available: {listing}")
    names = list(known.defaults)
    for option, table in known.implied.items():
        if option in options:
            names = list(_one_of(options[option], table, f"device {where}: {option}"))
    if known.key in options:
        names = list(dict.fromkeys(known.canonical(part.strip()) for part in options[known.key].split("+")))
    for name in names:
        if name not in known.names:
            listing = ", ".join(known.names)
            raise OptionError(f"device {where}: {known.key} {name or '(empty)'} is unknown; available: {listing}")
    suffix = "".join(_suffix(option, values, options, where) for option, values in modes.items())
    if options.get(REGISTERS) in known.registers[1:]:
        _expect_native_code(known, names, options[REGISTERS], where)
    names += [name for name in known.always if name not in names]
    return [name if family == HOST else f"{family}:{name}{suffix}" for name in names]


def _suffix(option: str, values: tuple[str, ...], options: Mapping[str, str], where: str) -> str:
    """The value of an option of all targets as the end of their names; empty for the default, the first of `values`."""
    given = options.get(option) if values else None
    if given is None or given == values[0]:
        return ""
    if given not in values:
        listing = ", ".join(values)
        raise OptionError(f"device {where}: {option} {given or '(empty)'} is unknown; available: {listing}")
    return f"/{given}"


def _expect_native_code(known: Family, names: list[str], mode: str, where: str) -> None:
    """Raises OptionError if all targets are those whose driver makes the machine code, which chooses registers."""
    native = [name for name in known.targets if name not in known.always]
    if not set(names) & set(native):
        raise OptionError(
            f"device {where}: {REGISTERS} {mode} has no effect for {known.key} {'+'.join(names)}, whose driver chooses "
            f"registers; leave it out, or name a {known.key} with native code: {', '.join(native)}"
        )


def driver_options(family: str, options: Mapping[str, str]) -> str:
    """The options of a device expression for the device's driver, as in a URI: `harts=4&memory=1G`."""
    known = families().get(family) if options else None
    if known is None:
        return ""
    return "&".join(f"{key}={value}" for key, value in options.items() if key in known.options)


def _one_of(value: str, table: Mapping[str, tuple[str, ...]], what: str) -> tuple[str, ...]:
    if value not in table:
        raise OptionError(f"{what} {value} is unknown; available: {', '.join(table)}")
    return table[value]


def resolve_target(name: str) -> Target:
    """The target with a full name. Raises OptionError if there is none."""
    family, colon, own = name.rpartition(":")
    if not colon:
        from motet.compiler.targets.native import resolve_cpu_target

        return resolve_cpu_target(name)
    own, *suffixes = own.split("/")
    known = families()[family]
    target = replace(known.targets[own], family=family)
    for value in suffixes:
        if value in known.precisions:
            if not isinstance(target, GpuTarget) or target.xpu is None or target.xpu.matrix_engine:
                target = replace(target, precision=value)
        elif isinstance(target, GpuTarget) and value in known.sub_groups:
            target = with_sub_group(target, int(value))
        elif isinstance(target, GpuTarget) and target.xpu is not None:
            target = replace(target, xpu=replace(target.xpu, registers=value))
    return target
