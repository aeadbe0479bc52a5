"""Checks the devices and plans of a manifest, and that regions have code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from msgspec.structs import replace

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import substitute
from motet.artifact.schema import Expr, Loop, Manifest, Plan, Signature, Step, TensorSpec
from motet.errors import ArtifactError, CallError


def all_steps(plan: Plan) -> Iterator[Step]:
    """The steps of a plan, including those of its loops."""
    for step in plan.steps:
        yield step
        if step.loop is not None:
            yield from all_steps(step.loop.condition)
            yield from all_steps(step.loop.body)


def has_loops(plan: Plan) -> bool:
    """Whether the number of executions of its steps depends on a call."""
    return any(step.op == "loop" for step in plan.steps)


def one_iteration(plan: Plan) -> Plan:
    """`plan` with each loop replaced by one execution of its condition and body."""
    steps: list[Step] = []
    numbers = count()

    def add(part: Plan, known: dict[int, int]) -> list[int]:
        for step in part.steps:
            operands = [known[value] for value in step.operands]
            if step.loop is None:
                made = [next(numbers) for _ in step.results]
                steps.append(replace(step, operands=operands, results=made))
            else:
                same = operands[step.loop.carried :]
                _, *made = add(step.loop.condition, dict(zip(step.loop.condition.inputs, operands, strict=True)))
                add(step.loop.body, dict(zip(step.loop.body.inputs, [*made, *same], strict=True)))
            known.update(zip(step.results, made, strict=True))
        return [known[value] for value in part.results]

    inputs = [next(numbers) for _ in plan.inputs]
    results = add(plan, dict(zip(plan.inputs, inputs, strict=True)))
    return replace(plan, values=next(numbers), inputs=inputs, results=results, steps=steps)


def check_plans(manifest: Manifest, where: str) -> None:
    """Raises ArtifactError unless references of devices, links and plans are valid, and every value of a plan is
    written once, before it is read."""
    names = [device.name for device in manifest.devices]
    if len(set(names)) != len(names):
        raise ArtifactError(f"{where}: a device stands there twice: {', '.join(names)}")
    if manifest.devices and not 0 <= manifest.default_device < len(names):
        raise ArtifactError(f"{where}: default device {manifest.default_device}: there are {len(names)}")
    for device in manifest.devices:
        for alternative in device.alternatives:
            kinds = bool(alternative.family), bool(alternative.fallback), alternative.ordinal is not None
            if kinds not in ((True, False, True), (True, False, False), (False, True, False), (False, False, True)):
                raise ArtifactError(
                    f"{where}: device {device.name!r}: an alternative is a family, an ordinal, both, or a fallback"
                )
            if (alternative.ordinal or 0) < 0:
                raise ArtifactError(f"{where}: device {device.name!r}: ordinal {alternative.ordinal}")
            if alternative.rank is not None and (alternative.rank < 0 or alternative.fallback):
                raise ArtifactError(f"{where}: device {device.name!r}: rank {alternative.rank}")
    for link in manifest.links:
        if link.source not in names or link.target not in names:
            raise ArtifactError(f"{where}: link {link.source!r} to {link.target!r}: devices are {', '.join(names)}")
    functions = {signature.name: signature for signature in manifest.functions}
    if (manifest.devices and set(manifest.plans) != set(functions)) or (manifest.plans and not manifest.devices):
        raise ArtifactError(
            f"{where}: has plans for {', '.join(manifest.plans) or 'none'}; expected {', '.join(functions) or 'none'}"
        )
    for name, plan in manifest.plans.items():
        _check_plan(plan, functions[name], manifest, f"{where}: plan {name!r}")


def _check_plan(plan: Plan, signature: Signature, manifest: Manifest, where: str) -> None:
    inputs = [TensorKind(spec.dtype, spec.shape) for spec in signature.inputs]
    found = _check_steps(plan, inputs, len(signature.results), manifest, where)
    for value, kind, spec in zip(plan.results, found, signature.results, strict=True):
        _check_kind(kind, TensorKind(spec.dtype, spec.shape), f"{where}: result value {value}")


def _check_steps(
    plan: Plan, inputs: Sequence[TensorKind], results: int, manifest: Manifest, where: str
) -> list[TensorKind]:
    """The types of the results of a plan that receives `inputs` and must have `results` results."""
    if len(plan.inputs) != len(inputs) or len(plan.results) != results:
        raise ArtifactError(f"{where}: has {len(plan.inputs)} inputs and {len(plan.results)} results")
    if len(plan.input_devices) != len(plan.inputs) or len(plan.result_devices) != len(plan.results):
        raise ArtifactError(f"{where}: not one device for each input and result")
    for device in (*plan.input_devices, *plan.result_devices):
        _check_device(device, manifest, where)
    ready: dict[int, TensorKind] = {}
    for value, kind in zip(plan.inputs, inputs, strict=True):
        _write(value, kind, plan, ready, f"{where}: inputs")
    for number, step in enumerate(plan.steps):
        _check_step(step, plan, ready, manifest, f"{where}: step {number}")
    for value in plan.results:
        if value not in ready:
            raise ArtifactError(f"{where}: result value {value}: no step writes it")
    return [ready[value] for value in plan.results]


def _check_step(step: Step, plan: Plan, ready: dict[int, TensorKind], manifest: Manifest, where: str) -> None:
    _check_device(step.device, manifest, where)
    for value in step.operands:
        if value not in ready:
            raise ArtifactError(f"{where}: value {value}: no step before writes it")
    if not 0 <= step.queues < 1 << 64:
        raise ArtifactError(f"{where}: queues {step.queues}")
    if step.op in ("send", "receive"):
        raise ArtifactError(f"{where}: it is {step.op!r}; expected run, transfer or loop")
    if (step.op == "loop") != (step.loop is not None):
        raise ArtifactError(f"{where}: a step is a loop where it has one; this is {step.op!r}")
    made = [ready[value] for value in step.operands]
    if step.loop is not None:
        made = _check_loop(step.loop, made, len(step.results), manifest, where)
    elif step.op == "run":
        region = manifest.regions.get(step.region)
        if region is None:
            raise ArtifactError(f"{where}: region {step.region!r}: no such region")
        _check_counts(step, len(region.inputs), len(region.results), where)
        for value, spec in zip(step.operands, region.inputs, strict=True):
            _check_kind(ready[value], TensorKind(spec.dtype, spec.shape), f"{where}: value {value}")
        made = [_result_kind(spec, region, made) for spec in region.results]
    else:
        _check_counts(step, 1, 1, where)
    for value, kind in zip(step.results, made, strict=True):
        _write(value, kind, plan, ready, where)


def _check_counts(step: Step, operands: int, results: int, where: str) -> None:
    if len(step.operands) != operands or len(step.results) != results:
        raise ArtifactError(
            f"{where}: {len(step.operands)} operands and {len(step.results)} results; expected {operands} and {results}"
        )


def _check_loop(
    loop: Loop, operands: Sequence[TensorKind], results: int, manifest: Manifest, where: str
) -> list[TensorKind]:
    """The types of a loop's results. Every iteration must yield the types that it receives."""
    if not 0 <= loop.carried <= len(operands):
        raise ArtifactError(f"{where}: carries {loop.carried} of {len(operands)} operands")
    same = operands[loop.carried :]
    goes_on, *passed = _check_steps(loop.condition, operands, 1 + results, manifest, f"{where}: condition")
    _check_kind(goes_on, TensorKind("i1", []), f"{where}: condition")
    handed_on = _check_steps(loop.body, [*passed, *same], loop.carried, manifest, f"{where}: body")
    for number, (kind, expected) in enumerate(zip(handed_on, operands[: loop.carried], strict=True)):
        _check_kind(kind, expected, f"{where}: body: result {number}")
    return passed


@dataclass(frozen=True)
class TensorKind:
    """The type of a value, as far as known: None for an extent that is only known in a call."""

    dtype: str
    shape: Sequence[Expr | None]


def _check_kind(given: TensorKind, expected: TensorKind, where: str) -> None:
    """Raises ArtifactError if a value cannot have the expected type. Dynamic extents are compared in the call."""
    same = len(given.shape) == len(expected.shape) and all(
        a == b for a, b in zip(given.shape, expected.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
    )
    if _in_code(given.dtype) != _in_code(expected.dtype) or not same:
        raise ArtifactError(f"{where}: a tensor {_show(given)}; expected {_show(expected)}")


def _in_code(dtype: str) -> str:
    """The type that code has for a caller's: integers are signless there, and types of fewer than 16 bits are bytes."""
    return "i8" if dtype != "i1" and DTYPES[dtype].itemsize == 1 else dtype.removeprefix("u")


def _show(kind: TensorKind) -> str:
    return "x".join([*(str(size) if isinstance(size, int) else "?" for size in kind.shape), kind.dtype])


def _result_kind(spec: TensorSpec, region: Signature, operands: Sequence[TensorKind]) -> TensorKind:
    symbols: dict[str, Expr] = {}
    for symbol in region.symbols:
        extent = operands[symbol.input].shape[symbol.axis]
        if isinstance(extent, int):
            symbols[symbol.name] = extent
    return TensorKind(spec.dtype, [_known(extent, symbols) for extent in spec.shape])


def _known(extent: Expr, symbols: Mapping[str, Expr]) -> Expr | None:
    try:
        value = substitute(extent, symbols)
    except CallError:  # a division by zero
        return None
    return value if isinstance(value, int) else None


def check_code(manifest: Manifest, where: str) -> None:
    """Raises ArtifactError if a region of a plan has no code in any variant."""
    there = {name for variant in manifest.variants for name in variant.schedules}
    for name in manifest.regions:
        if name not in there:
            raise ArtifactError(f"{where}: region {name!r}: no variant has code for it")


def _write(value: int, kind: TensorKind, plan: Plan, ready: dict[int, TensorKind], where: str) -> None:
    if not 0 <= value < plan.values:
        raise ArtifactError(f"{where}: value {value}: there are {plan.values}")
    if value in ready:
        raise ArtifactError(f"{where}: value {value}: it is written twice")
    ready[value] = kind


def _check_device(device: int, manifest: Manifest, where: str) -> None:
    if not 0 <= device < len(manifest.devices):
        raise ArtifactError(f"{where}: device {device}: there are {len(manifest.devices)}")


def whole_plan(signature: Signature) -> Plan:
    """The plan of a function that is one region, on the first device."""
    inputs = list(range(len(signature.inputs)))
    results = list(range(len(inputs), len(inputs) + len(signature.results)))
    step = Step("run", 0, inputs, results, signature.name)
    return Plan(len(inputs) + len(results), inputs, results, [0] * len(inputs), [0] * len(results), [step])
