"""A function for one combination of extents on one rank: its part of the plan, on its devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from motet.artifact.reader import Artifact
from motet.artifact.schema import Plan, Signature
from motet.ranks.courier import CallPeers
from motet.ranks.division import ROOT, RankPart
from motet.runtime.call import Tensor
from motet.runtime.device import Device
from motet.runtime.device_program import LoadedDevice
from motet.runtime.instantiate import Shape, shape_of
from motet.runtime.plan_executor import PlacedInstance, RankMessages
from motet.runtime.trace import CallEvents


@dataclass(frozen=True)
class RankCode:
    """The artifact, and this rank's devices, one of which is the host."""

    artifact: Artifact
    devices: Sequence[LoadedDevice]


class RankInstance:
    """See `motet.runtime.call.Runnable`. The arguments are those of rank 0; on others there are none. Results are there
    on the ranks that take them."""

    resident = False

    def __init__(
        self, signature: Signature, whole: Plan, part: RankPart, peers: CallPeers, code: RankCode,
        symbols: Mapping[str, int],
    ) -> None:
        manifest = code.artifact.manifest
        regions = manifest.regions if manifest.plans else {signature.name: signature}
        shapes = _shapes(signature, whole, regions, symbols)
        received = {
            step.results[0]: shapes[step.results[0]] for step in part.plan.steps if step.op == "receive"
        }
        self._inner = PlacedInstance(
            _own_signature(signature, part), part.plan, regions, code.devices, symbols,
            [loaded.variant.schedules for loaded in code.devices], RankMessages(peers, received),
        )
        self.inputs = self._inner.inputs
        self.results = self._inner.results
        self.prepared: Callable[..., Any] | None = None

    def run(self, arrays: Sequence[Tensor]) -> None:
        self._inner.run(arrays)

    def run_timed(self, arrays: Sequence[Tensor]) -> list[tuple[str, float]]:
        return self._inner.run_timed(arrays)

    def run_traced(self, arrays: Sequence[Tensor]) -> CallEvents:
        return self._inner.run_traced(arrays)

    def home(self, result: int) -> Device | None:
        return None

    @property
    def kept_bytes(self) -> int:
        return 0

    def prepare(self, fallback: Callable[..., Any]) -> None:
        return None


def _own_signature(signature: Signature, part: RankPart) -> Signature:
    """The signature of a rank's part. Ranks without arguments have new memory for results that overwrite one."""
    results = signature.results if part.plan.results or not signature.results else []
    if part.rank == ROOT:
        return replace(signature, results=results)
    return replace(
        signature, inputs=[], symbols=[], constraints=[], results=[replace(spec, destination=None) for spec in results]
    )


def _shapes(
    signature: Signature, plan: Plan, regions: Mapping[str, Signature], symbols: Mapping[str, int]
) -> dict[int, Shape]:
    """The shapes of all values of a plan, also those that only other ranks compute."""
    where = signature.name
    given = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.inputs]
    return _shapes_of(plan, given, regions, where)


def _shapes_of(
    plan: Plan, inputs: Sequence[Shape], regions: Mapping[str, Signature], where: str
) -> dict[int, Shape]:
    shapes = dict(zip(plan.inputs, inputs, strict=True))
    for step in plan.steps:
        made = given = [shapes[value] for value in step.operands]
        if step.op == "run":
            region = regions[step.region]
            own = {symbol.name: given[symbol.input].extents[symbol.axis] for symbol in region.symbols}
            made = [shape_of(spec, own, f"{where}: {spec.name}") for spec in region.results]
        elif step.loop is not None:  # it passes on what its condition does
            condition = step.loop.condition
            passed = _shapes_of(condition, given, regions, where)
            made = [passed[value] for value in condition.results[1:]]
        shapes.update(zip(step.results, made, strict=True))
    return shapes
