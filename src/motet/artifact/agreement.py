"""Checks a manifest against the code of its artifact: kernels must be launched as they were compiled for.

Code is trusted to keep its contract (`contracts.py`); a manifest is not trusted. Schedules without symbols are checked
when the artifact is opened (`check_agreement`), others for the extents of a call (`check_schedule`), before anything
runs: no command accesses memory outside its buffers, no buffer extends outside its memory, read-only memory of the
caller is not written, commands that share memory are ordered, and every result is written. The seal is compared last:
it detects a manifest that would run, but is not the one that the compiler wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.artifact.contracts import Contracts, Expected, KernelContract, Kernels, seal_of
from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate, evaluate_all
from motet.artifact.order import BufferRange, OrderedMemory, check_order
from motet.artifact.schema import STATUS_BYTES, Command, Manifest, Schedule, Signature, Variant
from motet.artifact.validation import check_range
from motet.errors import ArtifactError, CallError

_TENSORS = ("input", "result", "parameter", "arena")
_ALIGNMENT = 64  # of tensors in their memory, in bytes
_EXPECTED = "; the code was compiled for another manifest"


def check_agreement(manifest: Manifest, contracts: Contracts, where: str) -> None:
    """Raises ArtifactError, prefixed with `where`, for the first mismatch of manifest and code."""
    signatures = {signature.name: signature for signature in manifest.functions} | manifest.regions
    sizes = [math.prod(each.shape) * DTYPES[each.dtype].itemsize for each in manifest.parameters]
    for variant in manifest.variants:
        place = f"{where}: variant {variant.target!r}"
        kernels = _kernels_of(variant, contracts, place)
        for name, schedule in variant.schedules.items():
            if not signatures[name].symbols:
                own = f"{place}: schedule {name!r}"
                try:
                    evaluated = evaluate_schedule(signatures[name], schedule, sizes.__getitem__, own)
                    check_schedule(signatures[name], schedule, evaluated, kernels, own)
                except CallError as error:  # from arithmetic on sizes
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
class Evaluated:
    """A schedule for given extents. `memories` are the sizes in bytes of the inputs, the results, the arena, the
    parameters in use (`parameters`), then the statuses that are not in the arena; `places` are the memory and the range
    of each buffer; `launches` have each command's tasks and sizes."""

    memories: Sequence[int]
    parameters: Sequence[int]
    places: Sequence[tuple[int, int, int]]
    launches: Sequence[tuple[int, tuple[int, ...]]]


def evaluate_schedule(
    signature: Signature, schedule: Schedule, parameter_bytes: Callable[[int], int], where: str
) -> Evaluated:
    """Evaluates a schedule without symbols. Raises ArtifactError for buffers outside their memories."""
    memories: list[int] = []
    for spec in (*signature.inputs, *signature.results):
        shape = evaluate_all(spec.shape, {})
        if any(extent < 0 for extent in shape):
            raise ArtifactError(f"{where}: a tensor {'x'.join(map(str, shape))}; expected no negative extent")
        memories.append(math.prod(shape) * DTYPES[spec.dtype].itemsize)
    parameters = list(dict.fromkeys(buffer.index for buffer in schedule.buffers if buffer.kind == "parameter"))
    arena = evaluate(schedule.arena, {})
    first = {"input": 0, "result": len(signature.inputs), "arena": len(memories), "status": len(memories)}
    memories += [arena + STATUS_BYTES * len(schedule.checks), *map(parameter_bytes, parameters)]
    bases = {index: first["arena"] + 1 + number for number, index in enumerate(parameters)}
    places: list[tuple[int, int, int]] = []
    for number, buffer in enumerate(schedule.buffers):
        own = 0 if buffer.kind in ("arena", "status") else buffer.index
        base = bases[own] if buffer.kind == "parameter" else first[buffer.kind] + own
        begin, size = evaluate(buffer.offset, {}), evaluate(buffer.bytes, {})
        if buffer.kind == "status":  # after the schedule's part of the arena
            begin = arena + STATUS_BYTES * buffer.index
        check_range(begin, size, memories[base], f"{where}: buffer {number}: {buffer.kind} {own}")
        places.append((base, begin, begin + size))
    launches = [(max(0, evaluate(each.tasks, {})), evaluate_all(each.sizes, {})) for each in schedule.commands]
    return Evaluated(memories, parameters, places, launches)


class _Memories:
    """The permitted uses of a function's memories, and their names."""

    def __init__(self, signature: Signature, evaluated: Evaluated) -> None:
        inputs, results = len(signature.inputs), len(signature.results)
        places = [spec.destination for spec in signature.results]
        self.sizes = evaluated.memories
        self.arena = inputs + results
        # A result written to an input is in that input's memory.
        self.homes = {inputs + n: place for n, place in enumerate(places) if place is not None}
        self.results = [inputs + n for n, place in enumerate(places) if place is None]
        self.written = {*self.results, *self.homes.values(), self.arena}
        self.names = [
            *(f"input {n}" for n in range(inputs)), *(f"result {n}" for n in range(results)), "arena",
            *(f"parameter {n}" for n in evaluated.parameters),
        ]
        if len(self.names) < len(self.sizes):  # statuses outside the arena
            self.written.add(len(self.names))
            self.names.append("the statuses")

    def place(self, number: int, base: int, begin: int, end: int) -> BufferRange:
        home = self.homes.get(base, base)
        # A caller's memory may occur twice, as tensors of several shapes.
        return BufferRange(home, begin, end, number if home == self.arena else -home - 2)


def check_schedule(
    signature: Signature, schedule: Schedule, evaluated: Evaluated, kernels: Kernels, where: str, ordered: bool = True
) -> None:
    """Raises ArtifactError unless `schedule` meets the contracts in `kernels`. `ordered` also checks the order of
    commands, which is the slowest check."""
    memories = _Memories(signature, evaluated)
    places = [memories.place(number, *place) for number, place in enumerate(evaluated.places)]
    for number, found in enumerate(places):
        if schedule.buffers[number].kind in _TENSORS and found.begin % _ALIGNMENT:
            raise ArtifactError(f"{where}: buffer {number}: begins at byte {found.begin}; expected a multiple of "
                                f"{_ALIGNMENT}")
    finder = _Finder(kernels)
    contracts: list[KernelContract | None] = []
    for number, (command, (tasks, sizes)) in enumerate(zip(schedule.commands, evaluated.launches, strict=True)):
        place = f"{where}: command {number}"
        own = [places[buffer] for buffer in command.buffers]
        contract = finder.find(command, own, tasks, sizes, place) if command.op == "dispatch" else None
        _check_written(own, contract, memories, place)
        contracts.append(contract)
    scratch = max((contract.scratch for contract in contracts if contract is not None), default=0)
    if schedule.scratch < scratch:
        raise ArtifactError(f"{where}: {schedule.scratch} bytes of scratch; its code expects {scratch}")
    _check_phases(schedule.commands, contracts, where)
    if ordered:
        given = frozenset(range(len(memories.sizes))) - {*memories.results, memories.arena}
        memory = OrderedMemory(memories.sizes, given, [(base, memories.names[base]) for base in memories.results])
        touched = [[places[buffer] for buffer in each.buffers] for each in schedule.commands]
        check_order(schedule.commands, touched, memory, where)


class _Finder:
    """Finds the contracts that launches meet. The requirements of a kernel for given sizes are computed once."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._expected: dict[tuple[str, int, tuple[int, ...]], Expected | str] = {}

    def find(
        self, command: Command, places: Sequence[BufferRange], tasks: int, sizes: tuple[int, ...], where: str
    ) -> KernelContract:
        buffers = [place.end - place.begin for place in places]
        reason = ""
        for number, contract in enumerate(self._kernels.get(command.kernel, ())):
            key = command.kernel, number, sizes
            expected = self._expected.get(key)
            if expected is None:
                expected = self._expected[key] = contract.expects(sizes)
            obstacle = expected if isinstance(expected, str) else expected.obstacle(tasks, buffers)
            if obstacle is None and command.reads != contract.reads:
                obstacle = f"reads {command.reads} buffers; its code reads {contract.reads}"
            if obstacle is None:
                return contract
            reason = reason or obstacle
        raise ArtifactError(
            f"{where}: kernel {command.kernel!r}: {reason or 'no object of this target has it'}{_EXPECTED}"
        )


def _check_written(
    places: Sequence[BufferRange], contract: KernelContract | None, memories: _Memories, where: str
) -> None:
    """Checks that a command only writes the arena, a result, or an input that a result is written to, and no memory
    that it also accesses as another buffer, except where its kernel updates in place."""
    reads = 1 if contract is None else contract.reads
    updates = () if contract is None else contract.updates
    for position in range(reads, len(places)):
        own = places[position]
        if own.base not in memories.written:
            raise ArtifactError(f"{where}: writes {memories.names[own.base]}, which is only read{_EXPECTED}")
        for other in range(position):
            meets = places[other]
            if own.base != meets.base or own.begin >= meets.end or meets.begin >= own.end:
                continue
            if (other, position) not in updates or (own.begin, own.end) != (meets.begin, meets.end):
                raise ArtifactError(f"{where}: buffers {other} and {position} of it share bytes{_EXPECTED}")


Launch = tuple[Command, KernelContract]


def _check_phases(commands: Sequence[Command], contracts: Sequence[KernelContract | None], where: str) -> None:
    """Checks that each phase of a kernel except the first follows the previous one on the same buffers."""
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
    """Whether two phases have the same sizes, and the same memory for the kernel's buffers that both access."""
    own = dict(zip(before[1].positions, before[0].buffers, strict=True))
    pairs = zip(after[1].positions, after[0].buffers, strict=True)
    return before[0].sizes == after[0].sizes and all(own.get(position, buffer) == buffer for position, buffer in pairs)


class Agreement:
    """What schedules of a variant are checked against when extents are known. The order of commands is only checked for
    the first extents: it does not depend on them, except through errors that the seal detects."""

    def __init__(self, variant: Variant, contracts: Contracts | None) -> None:
        target = None if contracts is None else contracts.find(variant.family, variant.target)
        self._kernels = None if target is None else target.kernels
        self._own = {id(schedule) for schedule in variant.schedules.values()}
        self._ordered: set[int] = set()

    def check(self, signature: Signature, schedule: Schedule, evaluated: Evaluated, where: str) -> None:
        """Raises ArtifactError like `check_schedule`. For a schedule derived from the variant's own, in which one value
        may have several names, the order is not checked."""
        number = id(schedule)
        own = number in self._own
        if self._kernels is None or (own and not signature.symbols):
            return
        ordered = own and number not in self._ordered
        check_schedule(signature, schedule, evaluated, self._kernels, where, ordered)
        self._ordered.add(number)
