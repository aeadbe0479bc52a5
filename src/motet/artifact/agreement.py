"""Checks of a manifest against the code of its artifact: what kernels are given is what they were compiled for.

Code is trusted to keep to its contract (`contracts.py`); a manifest is not trusted at all. What has no symbols is
checked when the artifact is opened (`check_agreement`), all else for the extents of a call (`check_schedule`), before
anything runs: no command reaches outside of its buffers, no buffer outside of its memory, nothing that the caller gave
to be read is written, commands that meet in memory are ordered, and every result is written. The seal is compared last:
it tells of a manifest that would run, but is not the one that the compiler wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.contracts import Contracts, KernelContract, Kernels, seal_of
from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate, evaluate_all
from motet.artifact.order import Memory, Place, check_order
from motet.artifact.schema import STATUS_BYTES, Buffer, Command, Manifest, Schedule, Signature, Variant
from motet.errors import ArtifactError, CallError

_EXPECTED = "; the code was compiled for another manifest"


def check_agreement(manifest: Manifest, contracts: Contracts, where: str) -> None:
    """Raises ArtifactError naming `where` at the first thing that the code was not compiled for."""
    signatures = {signature.name: signature for signature in manifest.functions} | manifest.regions
    sizes = [math.prod(each.shape) * DTYPES[each.dtype].itemsize for each in manifest.parameters]
    for variant in manifest.variants:
        place = f"{where}: variant {variant.target!r}"
        kernels = _kernels_of(variant, contracts, place)
        for name, schedule in variant.schedules.items():
            if not signatures[name].symbols:
                own = f"{place}: schedule {name!r}"
                try:
                    check_schedule(signatures[name], schedule, {}, kernels, sizes.__getitem__, own)
                except CallError as error:  # of numbers
                    raise ArtifactError(f"{own}: {error}") from None
    if contracts.seal and contracts.seal != seal_of(manifest):
        raise ArtifactError(f"{where}: the manifest is not the one that its code was compiled with; compile it again")


def _kernels_of(variant: Variant, contracts: Contracts, where: str) -> Kernels:
    found = contracts.find(variant.family, variant.target)
    if found is None:
        known = ", ".join(f"{each.family} {each.target}" for each in contracts.targets) or "none"
        raise ArtifactError(f"{where}: no code for {variant.family} {variant.target}; there is for: {known}")
    if (variant.triple, variant.features, variant.objects) != (found.triple, found.features, found.objects):
        raise ArtifactError(f"{where}: its triple, features or objects are not those of its code")
    return found.kernels


@dataclass(frozen=True)
class _Memories:
    """The memories of a function: inputs, results (those with a destination are their input), the arena, statuses, and
    parameters as they come. `bases` is the first of a kind."""

    sizes: list[int]
    names: list[str]
    results: list[int]
    bases: Mapping[str, int]
    homes: Mapping[int, int]  # of results that are written to an input: that input
    written: frozenset[int]  # the inputs that results are written to


def check_schedule(
    signature: Signature, schedule: Schedule, symbols: Mapping[str, int], kernels: Kernels,
    parameter_bytes: Callable[[int], int], where: str, ordered: bool = True,
) -> None:
    """Raises ArtifactError unless `schedule`, for these values of the symbols, keeps to what `kernels` expect.
    `ordered` asks for the order of commands too, which takes the longest."""
    memories = _memories(signature, schedule, symbols, parameter_bytes, where)
    places = [
        _place(number, buffer, memories, symbols, f"{where}: buffer {number}")
        for number, buffer in enumerate(schedule.buffers)
    ]
    scratch = 0
    contracts: list[KernelContract | None] = []
    for number, command in enumerate(schedule.commands):
        place = f"{where}: command {number}"
        own = [places[buffer] for buffer in command.buffers]
        contract = _contract(command, own, symbols, kernels, place) if command.op == "dispatch" else None
        _check_written(command, own, contract, memories, place)
        scratch = max(scratch, contract.scratch if contract is not None else 0)
        contracts.append(contract)
    if schedule.scratch < scratch:
        raise ArtifactError(f"{where}: {schedule.scratch} bytes of scratch; its code expects {scratch}")
    _check_phases(schedule.commands, contracts, where)
    if ordered:
        given = frozenset(range(len(memories.sizes))) - {*memories.results, memories.bases["arena"]}
        memory = Memory(memories.sizes, given, [(base, memories.names[base]) for base in memories.results])
        touched = [[places[buffer] for buffer in command.buffers] for command in schedule.commands]
        check_order(schedule.commands, touched, memory, where)


def _memories(
    signature: Signature, schedule: Schedule, symbols: Mapping[str, int], parameter_bytes: Callable[[int], int],
    where: str,
) -> _Memories:
    specs = [*signature.inputs, *signature.results]
    shapes = [evaluate_all(spec.shape, symbols) for spec in specs]
    if any(extent < 0 for shape in shapes for extent in shape):
        raise ArtifactError(f"{where}: a tensor has a negative extent")
    sizes = [math.prod(shape) * DTYPES[spec.dtype].itemsize for spec, shape in zip(specs, shapes, strict=True)]
    names = [f"input {number}" for number in range(len(signature.inputs))]
    names += [f"result {number}" for number in range(len(signature.results))]
    first = len(signature.inputs)
    results = [first + number for number, spec in enumerate(signature.results) if spec.destination is None]
    homes = {
        first + number: spec.destination
        for number, spec in enumerate(signature.results) if spec.destination is not None
    }
    arena, statuses = len(sizes), len(schedule.checks)
    bases = {"input": 0, "result": first, "arena": arena, "status": arena + 1, "parameter": arena + 1 + statuses}
    used = 1 + max((buffer.index for buffer in schedule.buffers if buffer.kind == "parameter"), default=-1)
    sizes += [evaluate(schedule.arena, symbols), *[STATUS_BYTES] * statuses, *map(parameter_bytes, range(used))]
    names += ["arena", *(f"status {number}" for number in range(statuses))]
    names += [f"parameter {number}" for number in range(used)]
    return _Memories(sizes, names, results, bases, homes, frozenset(homes.values()))


def _place(number: int, buffer: Buffer, memories: _Memories, symbols: Mapping[str, int], where: str) -> Place:
    base = memories.bases[buffer.kind] + (0 if buffer.kind == "arena" else buffer.index)
    base = memories.homes.get(base, base)
    begin, size = evaluate(buffer.offset, symbols), evaluate(buffer.bytes, symbols)
    if begin < 0 or size < 0 or begin + size > memories.sizes[base]:
        raise ArtifactError(
            f"{where}: {memories.names[base]}: bytes {begin} to {begin + size}; there are {memories.sizes[base]}"
        )
    # A caller's memory may stand there twice, as tensors of several shapes.
    return Place(base, begin, begin + size, number if buffer.kind == "arena" else -base - 2)


def _contract(
    command: Command, places: Sequence[Place], symbols: Mapping[str, int], kernels: Kernels, where: str
) -> KernelContract:
    """The one that a launch keeps to."""
    tasks, sizes = max(0, evaluate(command.tasks, symbols)), evaluate_all(command.sizes, symbols)
    bytes_ = [place.end - place.begin for place in places]
    found = kernels.get(command.kernel, [])
    reasons: list[str] = [] if found else ["no object of this target has it"]
    for contract in found:
        reason = contract.obstacle(tasks, sizes, bytes_)
        if reason is None and command.reads != contract.reads:
            reason = f"reads {command.reads} buffers; its code reads {contract.reads}"
        if reason is None:
            return contract
        reasons.append(reason)
    raise ArtifactError(f"{where}: kernel {command.kernel!r}: {reasons[0]}{_EXPECTED}")


def _check_written(
    command: Command, places: Sequence[Place], contract: KernelContract | None, memories: _Memories, where: str
) -> None:
    """What a command writes is the arena's, a status, a result's or an input's that a result is written to, and nothing that it
    reads or writes besides, except where its kernel updates in place."""
    reads = 1 if contract is None else contract.reads
    updates = () if contract is None else contract.updates
    first = memories.bases["result"]
    for position in range(reads, len(places)):
        own = places[position]
        if not first <= own.base < memories.bases["parameter"] and own.base not in memories.written:
            raise ArtifactError(f"{where}: writes {memories.names[own.base]}, which is only read{_EXPECTED}")
        for other in range(position):
            meets = places[other]
            if own.base != meets.base or own.begin >= meets.end or meets.begin >= own.end:
                continue
            if (other, position) not in updates or (own.begin, own.end) != (meets.begin, meets.end):
                raise ArtifactError(f"{where}: buffers {other} and {position} of it share bytes{_EXPECTED}")


Launch = tuple[Command, KernelContract]


def _check_phases(commands: Sequence[Command], contracts: Sequence[KernelContract | None], where: str) -> None:
    """Each phase of a kernel but the first comes behind the one before it, which was on the same buffers."""
    begun: dict[str, list[Launch]] = {}
    for number, (command, contract) in enumerate(zip(commands, contracts, strict=True)):
        if contract is None or not contract.positions:
            continue
        launch = command, contract
        if contract.follows:
            before = begun.get(contract.follows, [])
            match = next((each for each in before if _continues(each, launch)), None)
            if match is None:
                raise ArtifactError(
                    f"{where}: command {number}: kernel {command.kernel!r}: expected {contract.follows!r} before it, "
                    f"on the same buffers{_EXPECTED}"
                )
            before.remove(match)
        begun.setdefault(command.kernel, []).append(launch)


def _continues(before: Launch, after: Launch) -> bool:
    """Whether two phases have the same sizes and the same memory for those of the kernel's buffers that both take."""
    own = dict(zip(before[1].positions, before[0].buffers, strict=True))
    pairs = zip(after[1].positions, after[0].buffers, strict=True)
    return before[0].sizes == after[0].sizes and all(own.get(position, buffer) == buffer for position, buffer in pairs)


class Agreement:
    """What schedules of a variant are checked against when extents are known. Their order is checked for the first
    extents alone: what is there to compare does not depend on them, but for mistakes that the seal tells of."""

    def __init__(self, variant: Variant, contracts: Contracts | None) -> None:
        target = None if contracts is None else contracts.find(variant.family, variant.target)
        self._kernels = None if target is None else target.kernels
        self._own = {id(schedule) for schedule in variant.schedules.values()}
        self._ordered: set[int] = set()

    def check(
        self, signature: Signature, schedule: Schedule, symbols: Mapping[str, int],
        parameter_bytes: Callable[[int], int], where: str,
    ) -> None:
        """Raises ArtifactError as `check_schedule` does. A schedule that was made of the variant's own, whose values
        have several names, is checked but for the order."""
        number = id(schedule)
        own = number in self._own
        if self._kernels is None or (own and not signature.symbols):
            return
        ordered = own and number not in self._ordered
        check_schedule(signature, schedule, symbols, self._kernels, parameter_bytes, where, ordered)
        self._ordered.add(number)
