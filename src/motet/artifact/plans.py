"""Checks of what a manifest says of devices: the devices themselves, the plans over them, and that there is code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.expressions import substitute
from motet.artifact.schema import Expr, Manifest, Plan, Signature, Step, TensorSpec
from motet.errors import ArtifactError, CallError


def check_plans(manifest: Manifest, where: str) -> None:
    """Raises ArtifactError unless devices, links and plans refer to what is there, and every value of a plan is
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
    if len(plan.inputs) != len(signature.inputs) or len(plan.results) != len(signature.results):
        raise ArtifactError(f"{where}: has {len(plan.inputs)} inputs and {len(plan.results)} results")
    if len(plan.input_devices) != len(plan.inputs) or len(plan.result_devices) != len(plan.results):
        raise ArtifactError(f"{where}: not one device for each input and result")
    for device in (*plan.input_devices, *plan.result_devices):
        _check_device(device, manifest, where)
    ready: dict[int, Kind] = {}
    for value, spec in zip(plan.inputs, signature.inputs, strict=True):
        _write(value, Kind(spec.dtype, spec.shape), plan, ready, f"{where}: inputs")
    for number, step in enumerate(plan.steps):
        _check_step(step, plan, ready, manifest, f"{where}: step {number}")
    for value, spec in zip(plan.results, signature.results, strict=True):
        if value not in ready:
            raise ArtifactError(f"{where}: result value {value}: no step writes it")
        _check_kind(ready[value], Kind(spec.dtype, spec.shape), f"{where}: result value {value}")


def _check_step(step: Step, plan: Plan, ready: dict[int, Kind], manifest: Manifest, where: str) -> None:
    _check_device(step.device, manifest, where)
    for value in step.operands:
        if value not in ready:
            raise ArtifactError(f"{where}: value {value}: no step before writes it")
    if not 0 <= step.queues < 1 << 64:
        raise ArtifactError(f"{where}: queues {step.queues}")
    operands, results = 1, 1
    region = None
    if step.op == "run":
        region = manifest.regions.get(step.region)
        if region is None:
            raise ArtifactError(f"{where}: region {step.region!r}: no such region")
        operands, results = len(region.inputs), len(region.results)
    if len(step.operands) != operands or len(step.results) != results:
        raise ArtifactError(
            f"{where}: {len(step.operands)} operands and {len(step.results)} results; expected {operands} and {results}"
        )
    made = [ready[value] for value in step.operands]
    if region is not None:
        for value, spec in zip(step.operands, region.inputs, strict=True):
            _check_kind(ready[value], Kind(spec.dtype, spec.shape), f"{where}: value {value}")
        made = [_result_kind(spec, region, made) for spec in region.results]
    for value, kind in zip(step.results, made, strict=True):
        _write(value, kind, plan, ready, where)


@dataclass(frozen=True)
class Kind:
    """The tensor that a value is, as far as it is known: None is an extent that a call decides."""

    dtype: str
    shape: Sequence[Expr | None]


def _check_kind(given: Kind, expected: Kind, where: str) -> None:
    """Raises ArtifactError where a value cannot be what it is taken for. Extents that a call decides are compared in
    the call."""
    same = len(given.shape) == len(expected.shape) and all(
        a == b for a, b in zip(given.shape, expected.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
    )
    # Code has integers without a sign; the caller's tensors may have one.
    if given.dtype.removeprefix("u") != expected.dtype.removeprefix("u") or not same:
        raise ArtifactError(f"{where}: a tensor {_show(given)}; expected {_show(expected)}")


def _show(kind: Kind) -> str:
    return "x".join([*(str(size) if isinstance(size, int) else "?" for size in kind.shape), kind.dtype])


def _result_kind(spec: TensorSpec, region: Signature, operands: Sequence[Kind]) -> Kind:
    symbols: dict[str, Expr] = {}
    for symbol in region.symbols:
        extent = operands[symbol.input].shape[symbol.axis]
        if isinstance(extent, int):
            symbols[symbol.name] = extent
    return Kind(spec.dtype, [_known(extent, symbols) for extent in spec.shape])


def _known(extent: Expr, symbols: Mapping[str, Expr]) -> Expr | None:
    try:
        value = substitute(extent, symbols)
    except (KeyError, CallError):  # a symbol that is not known, or a division by zero
        return None
    return value if isinstance(value, int) else None


def check_code(manifest: Manifest, where: str) -> None:
    """Raises ArtifactError where a region of a plan has no code in any variant."""
    there = {name for variant in manifest.variants for name in variant.schedules}
    for name in manifest.regions:
        if name not in there:
            raise ArtifactError(f"{where}: region {name!r}: no variant has code for it")


def _write(value: int, kind: Kind, plan: Plan, ready: dict[int, Kind], where: str) -> None:
    if not 0 <= value < plan.values:
        raise ArtifactError(f"{where}: value {value}: there are {plan.values}")
    if value in ready:
        raise ArtifactError(f"{where}: value {value}: it is written twice")
    ready[value] = kind


def _check_device(device: int, manifest: Manifest, where: str) -> None:
    if not 0 <= device < len(manifest.devices):
        raise ArtifactError(f"{where}: device {device}: there are {len(manifest.devices)}")
