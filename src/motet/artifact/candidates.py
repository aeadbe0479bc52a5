"""Candidates: an artifact may contain several forms of a kernel, to choose the fastest on a machine with the device.

`tuning/candidates.json` lists them. The form that the compiler prefers is among the objects of its variant as usual, so
that such an artifact runs like any other. `pruned` keeps the chosen forms only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import structs

from motet.artifact.contracts import CONTRACTS, TargetContract, decode_contracts, seal
from motet.artifact.expressions import substitute
from motet.artifact.kernel_schedules import drop_schedules
from motet.artifact.library import LibraryCall, damage, with_library
from motet.artifact.reader import PARAMETERS, Artifact
from motet.artifact.schema import Expr, Manifest, Schedule, Variant
from motet.decoding import decode_json
from motet.errors import ArtifactError

INDEX = "tuning/candidates.json"


class FormCandidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One form: `kernel` is its name in its code, `tasks` its grid, over the kernel's own symbols; `members` are its
    objects, followed by other members that belong to it. The first candidate's are those of the variant."""

    label: str
    kernel: str
    tasks: Expr
    members: list[str]


class Tunable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A kernel of the variant for `target` of `family`, named `kernel` in its schedules; `key` is its name in tunings.
    `symbols` are the symbols of grids: the sizes of its launches, in order. `library` is an equivalent library call, if
    there is one."""

    family: str
    target: str
    kernel: str
    key: str
    about: str
    candidates: list[FormCandidate]
    symbols: list[str] = []
    library: LibraryCall | None = None


def encode_index(kernels: Sequence[Tunable]) -> bytes:
    return msgspec.json.encode(list(kernels))


def read_index(artifact: Artifact) -> list[Tunable]:
    """The kernels of an artifact with several forms. Raises ArtifactError for a damaged list."""
    if INDEX not in artifact.manifest.members:
        return []
    try:
        found = decode_json(artifact.member(INDEX), list[Tunable])
    except msgspec.DecodeError as error:
        raise ArtifactError(f"{artifact.name}: member {INDEX}: {error}") from None
    for kernel in found:
        if kernel.library is not None and (reason := damage(kernel.library)):
            raise ArtifactError(f"{artifact.name}: member {INDEX}: kernel {kernel.kernel}: {reason}")
        for candidate in kernel.candidates:
            for name in candidate.members:
                if name not in artifact.manifest.members:
                    raise ArtifactError(f"{artifact.name}: member {INDEX}: {name} is not there")
    return found


@dataclass(frozen=True)
class Chosen:
    """The number of the chosen candidate, and the library call to run instead of it, if any."""

    candidate: int
    call: LibraryCall | None = None


def pruned(
    artifact: Artifact, chosen: Mapping[tuple[str, str, str], Chosen]
) -> tuple[Manifest, dict[str, bytes | memoryview], dict[str, np.ndarray]]:
    """The input of `write_artifact` for an artifact without candidates: for every kernel, identified by family, target
    and symbol, the chosen candidate (by default the first), and the chosen library call that replaces it."""
    manifest = artifact.manifest
    members: dict[str, bytes | memoryview] = {
        name: artifact.member(name) for name in manifest.members
        if name not in (PARAMETERS, manifest.external_parameters, INDEX)
    }
    grids: dict[tuple[str, str], dict[str, Grid]] = {}
    for kernel in read_index(artifact):
        choice = chosen.get((kernel.family, kernel.target, kernel.kernel))
        first, winner = kernel.candidates[0], kernel.candidates[choice.candidate if choice is not None else 0]
        content = {own: members[name] for own, name in zip(first.members, winner.members, strict=True)}
        for own, data in content.items():
            if own.endswith(".json"):
                described = _renamed(data, kernel.kernel)
                content[own] = described if choice is None else with_library(described, choice.call)
        for candidate in kernel.candidates:
            for name in candidate.members:
                members.pop(name, None)
        members |= content
        grids.setdefault((kernel.family, kernel.target), {})[kernel.kernel] = Grid(winner.tasks, tuple(kernel.symbols))
    variants = [_with_grids(each, grids.get((each.family, each.target), {})) for each in manifest.variants]
    parameters = {each.key: artifact.parameter(i) for i, each in enumerate(manifest.parameters)}
    drop_schedules(members, _rescheduled(read_index(artifact), chosen))
    settled = structs.replace(manifest, variants=variants)
    _settle_contracts(members, settled, grids)
    return settled, members, parameters


def _rescheduled(
    kernels: Sequence[Tunable], chosen: Mapping[tuple[str, str, str], Chosen]
) -> set[tuple[str, str]]:
    """The launches, by target and symbol, whose chosen form is not the compiler's first choice."""
    picks = ((kernel, chosen.get((kernel.family, kernel.target, kernel.kernel))) for kernel in kernels)
    return {
        (f"{kernel.family}:{kernel.target}", kernel.kernel) for kernel, pick in picks
        if pick is not None and pick.candidate
    }


def _settle_contracts(
    members: dict[str, bytes | memoryview], manifest: Manifest, grids: Mapping[tuple[str, str], Mapping[str, Grid]]
) -> None:
    """Updates the contracts of launches to those of the chosen candidates."""
    if CONTRACTS not in members:
        return
    contracts = decode_contracts(members[CONTRACTS], "artifact")
    targets: list[TargetContract] = []
    for target in contracts.targets:
        own = grids.get((target.family, target.target), {})
        kernels = {
            symbol: [
                structs.replace(each, tasks=own[symbol].over(each.symbols)) if symbol in own else each for each in all_
            ]
            for symbol, all_ in target.kernels.items()
        }
        targets.append(structs.replace(target, kernels=kernels))
    members[CONTRACTS] = msgspec.json.encode(structs.replace(contracts, targets=targets))
    seal(manifest, members)


def _renamed(description: bytes | memoryview, kernel: str) -> bytes:
    """A kernel's description with the name replaced by `kernel`."""
    content = decode_json(description, dict[str, object])
    return msgspec.json.format(msgspec.json.encode(content | {"kernel": kernel}), indent=2)


@dataclass(frozen=True)
class Grid:
    """The number of tasks of a launch over `symbols`, which are its sizes."""

    tasks: Expr
    symbols: tuple[str, ...] = ()

    def over(self, sizes: Sequence[Expr]) -> Expr:
        """The number of tasks over the sizes of a command."""
        return substitute(self.tasks, dict(zip(self.symbols, sizes, strict=True)))


def _with_grids(variant: Variant, grids: Mapping[str, Grid]) -> Variant:
    return structs.replace(
        variant, schedules={name: with_grids(schedule, grids) for name, schedule in variant.schedules.items()}
    )


def with_grids(schedule: Schedule, grids: Mapping[str, Grid]) -> Schedule:
    """`schedule` with other grids for the kernels that `grids` names."""
    commands = [
        structs.replace(command, tasks=grids[command.kernel].over(command.sizes))
        if command.kernel in grids else command
        for command in schedule.commands
    ]
    return structs.replace(schedule, commands=commands)
