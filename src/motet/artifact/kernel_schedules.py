"""Schedules of kernels, by kernel and target: a member of every artifact, and an input file of the compiler.

    {"motet_schedules": 1,
     "kernels": [{"kernel": "9f0c…", "target": "host:x86-64-v4", "names": ["main_kernel_0"], "about": "linalg.matmul",
                  "schedule": {"class": "contraction", "lanes": 16, "rows": 8, "vectors": 3, …}}]}

`kernel` identifies the computation and its extents, independently of the program; in an input file it may also be one
of the kernel's `names` in the program. `compiler/kernels/schedule.py` has the fields of a schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from motet.decoding import decode_json
from motet.errors import ArtifactError, OptionError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from motet.artifact.reader import Artifact

SCHEDULES = "schedules.json"
VERSION = 1
FOR_EXTENTS = ", found for extents "  # in the origin of a schedule of another kernel
_NEAR = 1.0  # distance of extents: that of one however large, or of two that are twice as large


class ScheduledKernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The schedule of one kernel for one target (`family:target`); `names` and `about` are informative. `origin` is the
    record of a database that the schedule was taken from, "" for others; `form` and `extents` are that record's."""

    kernel: str
    target: str
    schedule: dict[str, Any]
    names: list[str] = []
    about: str = ""
    origin: str = ""
    form: str = ""
    extents: list[int] = []


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    motet_schedules: int
    kernels: list[ScheduledKernel]


class _Header(msgspec.Struct, frozen=True):
    motet_schedules: int


@dataclass(frozen=True)
class GivenSchedules:
    """The schedules in an input file of the compiler; `where` names the file."""

    kernels: Mapping[tuple[str, str], ScheduledKernel]
    where: str = ""

    def find(self, kernel: str, name: str, target: str) -> ScheduledKernel | None:
        """The schedule given for the kernel with key `kernel`, or for the program's kernel `name`, and `target`."""
        return self.kernels.get((name, target)) or self.kernels.get((kernel, target))

    def near(self, form: str, extents: Sequence[int], target: str) -> list[ScheduledKernel]:
        """The records of kernels of this form whose extents are near, the nearest first."""
        near = [each for each in self._of_forms.get((form, target), ()) if distance(each.extents, extents) <= _NEAR]
        return sorted(near, key=lambda each: distance(each.extents, extents))

    @functools.cached_property
    def _of_forms(self) -> Mapping[tuple[str, str], Sequence[ScheduledKernel]]:
        """The records of each form and target."""
        found: dict[tuple[str, str], list[ScheduledKernel]] = {}
        for each in self.kernels.values():
            if each.form:
                found.setdefault((each.form, each.target), []).append(each)
        return found

    def unknown(self, present: Sequence[ScheduledKernel]) -> list[str]:
        """The given kernels that `present` has for no target, or not for a target that it has; a database has kernels
        of other programs, too."""
        targets = {each.target for each in present}
        known = {(name, each.target) for each in present for name in (each.kernel, *each.names)}
        return [name for (name, target), each in self.kernels.items()
                if target in targets and (name, target) not in known and not each.origin]


def distance(a: Sequence[int], b: Sequence[int]) -> float:
    """How far extents are from others: the sum of their relative differences, infinite for other numbers of them."""
    if len(a) != len(b):
        return float("inf")
    return sum(abs(x - y) / max(1, x, y) for x, y in zip(a, b, strict=True))


NO_SCHEDULES = GivenSchedules({})


def encode_schedules(kernels: Sequence[ScheduledKernel]) -> bytes:
    """A file with every kernel of equal key and target once; a kernel with another schedule than an earlier kernel of
    the same key is identified by its names."""
    found: dict[tuple[str, str], ScheduledKernel] = {}
    names: dict[tuple[str, str], dict[str, None]] = {}  # in order
    for each in kernels:
        key = each.kernel, each.target
        if found.setdefault(key, each).schedule == each.schedule:
            names.setdefault(key, {}).update(dict.fromkeys(each.names))
            continue
        for name in each.names:
            found[name, each.target] = msgspec.structs.replace(each, kernel=name)
            names[name, each.target] = {name: None}
    content = [msgspec.structs.replace(each, names=list(names[key])) for key, each in found.items()]
    return msgspec.json.encode(_Content(VERSION, content))


def parse_schedules(data: bytes | str, where: str) -> list[ScheduledKernel]:
    """Parses a file of schedules. Raises OptionError, prefixed with `where`, if it is invalid."""
    try:
        version = decode_json(data, _Header).motet_schedules
        if version != VERSION:
            raise OptionError(f"{where}: schedules of version {version}; expected {VERSION}")
        return decode_json(data, _Content).kernels
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OptionError(
            f"{where}: no schedules: {error}; expected a file that motet inspect --schedules --json prints"
        ) from None


def given_schedules(data: bytes | str, where: str) -> GivenSchedules:
    """The content of an input file. Raises OptionError also for a kernel that occurs twice."""
    found: dict[tuple[str, str], ScheduledKernel] = {}
    for each in parse_schedules(data, where):
        if (each.kernel, each.target) in found:
            raise OptionError(f"{where}: kernel {each.kernel} has two schedules for {each.target}; expected one")
        found[each.kernel, each.target] = each
    return GivenSchedules(found, where)


def add_schedules(members: MutableMapping[str, bytes], kernels: Sequence[ScheduledKernel]) -> None:
    """Adds the schedules of one target to the members of an artifact."""
    earlier = parse_schedules(members[SCHEDULES], "artifact") if SCHEDULES in members else []
    members[SCHEDULES] = encode_schedules([*earlier, *kernels])


def drop_schedules(members: MutableMapping[str, bytes | memoryview], launches: set[tuple[str, str]]) -> None:
    """Removes the kernels of `launches`, by target and symbol, whose schedules have changed."""
    if SCHEDULES not in members or not launches:
        return

    def is_kept(each: ScheduledKernel) -> bool:
        own = {symbol for target, symbol in launches if target == each.target}
        return not any(symbol == name or symbol.startswith(f"{name}_") for name in each.names for symbol in own)

    found = parse_schedules(bytes(members[SCHEDULES]), "artifact")
    members[SCHEDULES] = encode_schedules([each for each in found if is_kept(each)])


def schedules_of(artifact: Artifact) -> list[ScheduledKernel]:
    """The schedules of an artifact's kernels; empty for artifacts from before schedules were stored. Raises
    ArtifactError for a damaged list."""
    if SCHEDULES not in artifact.manifest.members:
        return []
    try:
        return parse_schedules(bytes(artifact.member(SCHEDULES)), f"{artifact.name}: member {SCHEDULES}")
    except OptionError as error:
        raise ArtifactError(str(error)) from None
