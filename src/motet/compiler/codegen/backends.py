"""Finds the back end of a target by the name that the target's family gives.

Motet contains `cpu` and `triton`. Other distributions add back ends by entry points of the group `motet.codegen`; each
names a `CodeGenerator` (`backend.py`). It is loaded when code for one of its families is requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from motet.compiler.targets.families import families
from motet.compiler.targets.family import Target
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.errors import MotetError, OptionError
from motet.plug_ins import plug_ins

if TYPE_CHECKING:  # imports MLIR, which `prepare` must not wait for
    from motet.compiler.codegen.backend import Backend, CodeGenerator

API_VERSION = 1  # of the protocol in `backend.py`
GROUP = "motet.codegen"
BUILT_IN: Mapping[str, str] = MappingProxyType({
    "cpu": "motet.compiler.codegen.cpu.backend",
    "triton": "motet.compiler.codegen.gpu_generator",
})


def backend_of(target: Target, choice: Choice = DEFAULT) -> Backend:
    """The back end for `target`; `choice` selects forms of kernels. Raises OptionError if there is none, or if a
    package that it needs is not installed."""
    generator = load_generator(generator_name(target.family))
    try:
        return generator.open(target, choice)
    except MotetError:
        raise
    except Exception as error:  # raised by a plug-in
        raise OptionError(
            f"device {target.family}: the code generator {generator_name(target.family)} cannot be opened for "
            f"{target.name}: {type(error).__name__}: {error}"
        ) from error


def generator_name(family: str) -> str:
    """The name of the code generator of `family`. Raises OptionError for an unknown family."""
    known = families()
    if family not in known:
        raise OptionError(f"device {family}: no code can be made for it; available: {', '.join(known)}")
    return known[family].codegen


def load_generator(name: str) -> CodeGenerator:
    """The code generator `name`. Raises OptionError if it is not installed, cannot be loaded, or implements another
    version of the protocol."""
    own = BUILT_IN.get(name)  # plug-ins cannot replace it
    entry = metadata.EntryPoint(name, own, GROUP) if own is not None else plug_ins(GROUP).get(name)
    if entry is None:
        users = [family for family, known in families().items() if known.codegen == name]
        raise OptionError(
            f"code generator {name}, which {', '.join(users)} devices need: it is not installed; available: "
            f"{', '.join(generator_names())}; install the package that has the entry point {name} of {GROUP}"
        )
    where = f"code generator {name} ({entry.value})"
    try:
        found = cast("CodeGenerator", entry.load())
    except ModuleNotFoundError as error:
        raise OptionError(f"{where}: {error}; {_install(entry)}") from error
    except (Exception, SystemExit) as error:  # importing a plug-in runs its code
        raise OptionError(f"{where}: {type(error).__name__}: {error}") from error
    version = getattr(found, "api", None)
    if version != API_VERSION:
        raise OptionError(f"{where}: written for version {version} of the contract; expected {API_VERSION}")
    return found


def generator_names() -> list[str]:
    """The names of all code generators, including those that cannot be loaded, Motet's own first."""
    return [*BUILT_IN, *sorted(plug_ins(GROUP).keys() - BUILT_IN.keys())]


def families_without_code() -> dict[str, str]:
    """The families whose code generator cannot be loaded, with the reason."""
    found: dict[str, str] = {}
    for family, known in families().items():
        if known.codegen not in BUILT_IN:
            try:
                load_generator(known.codegen)
            except OptionError as error:
                found[family] = str(error)
    return found


def prepare(targets: Sequence[Target]) -> None:
    """Start to load the tools for `targets` in the background. A failure is reported when code is requested."""
    by_name: dict[str, list[Target]] = {}
    for target in targets:
        by_name.setdefault(generator_name(target.family), []).append(target)
    for name, own in by_name.items():
        try:
            begin = getattr(load_generator(name), "prepare", None)
        except OptionError:
            continue
        if begin is not None:
            begin(own)


def _install(entry: metadata.EntryPoint) -> str:
    """The command that installs the requirements of the distribution of `entry`."""
    distribution = entry.dist.name if entry.dist is not None else "motet[compile]"
    return f"install what {distribution} needs: pip install '{distribution}'"
