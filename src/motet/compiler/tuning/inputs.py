"""Extents for measuring schedules: `tune-inputs=64x128xf32,128xf32`, or, if several functions have dynamic extents,
`tune-inputs=main:64x128xf32;step:1x128xf32`.

    text → shapes of the inputs of each function → values of its symbols → those of the regions of its plan
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate
from motet.artifact.plans import one_iteration
from motet.artifact.schema import Manifest, Plan, Signature, TensorSpec
from motet.errors import OptionError
from motet.runtime.instantiate import Shape, shape_of

OPTION = "tune-inputs"
_SHAPE = re.compile(r"((?:[0-9]{1,18}x)*)([A-Za-z]\w*)")

# The extents and dtype of every input, by the name of the function; "" stands for the function with dynamic extents.
Given = Mapping[str, Sequence[tuple[tuple[int, ...], str]]]
Symbols = Mapping[str, int]


def parse_inputs(text: str) -> Given:
    """Raises OptionError for invalid text."""
    found: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for part in text.split(";"):
        name, _, shapes = part.rpartition(":")
        if name.strip() in found:
            raise OptionError(f"option {OPTION}={text}: function {name.strip()!r} stands there twice; expected once")
        found[name.strip()] = [_parse_shape(shape.strip(), text) for shape in shapes.split(",")]
    return found


def _parse_shape(shape: str, text: str) -> tuple[tuple[int, ...], str]:
    match = _SHAPE.fullmatch(shape)
    if match is None or match[2] not in DTYPES:
        raise OptionError(f"option {OPTION}={text}: {shape!r} is no shape; expected extents and a dtype for every "
                          f"input, such as {OPTION}=64x128xf32,128xf32")
    return tuple(int(extent) for extent in match[1].split("x")[:-1]), match[2]


def symbols_of(signature: Signature, given: Given) -> Symbols:
    """The values of a function's symbols for the extents given for it.

    Raises: OptionError if the function has dynamic extents and none, or unsuitable ones, are given.
    """
    if not signature.symbols:
        return {}
    shapes = given.get(signature.name, given.get(""))
    wanted = ",".join(_show(spec) for spec in signature.inputs)
    names = ", ".join(symbol.name for symbol in signature.symbols)
    if shapes is None:
        raise OptionError(f"option tune-schedule=measure: {signature.name} has dynamic extents; expected those to "
                          f"measure with: {OPTION}={wanted} with numbers for {names}")
    values = {symbol.name: _extent(shapes, symbol.input, symbol.axis) for symbol in signature.symbols}
    expected = [([evaluate(extent, values) for extent in spec.shape], spec.dtype) for spec in signature.inputs]
    if [(list(shape), dtype) for shape, dtype in shapes] != expected:
        there = ",".join("x".join([*map(str, shape), dtype]) for shape, dtype in shapes)
        raise OptionError(f"option {OPTION}: {there} does not fit {signature.name}; expected {wanted} with numbers "
                          f"for {names}")
    return values


def _extent(shapes: Sequence[tuple[tuple[int, ...], str]], index: int, axis: int) -> int:
    return shapes[index][0][axis] if index < len(shapes) and axis < len(shapes[index][0]) else -1


def _show(spec: TensorSpec) -> str:
    return "x".join([*(str(extent) if isinstance(extent, (int, str)) else "?" for extent in spec.shape), spec.dtype])


def region_symbols(manifest: Manifest, given: Given) -> dict[str, Symbols]:
    """The values of the symbols of every function and of every region of their plans; for a region run by several
    steps, those of the first."""
    found: dict[str, Symbols] = {}
    for signature in manifest.functions:
        symbols = symbols_of(signature, given)
        plan = manifest.plans.get(signature.name)
        if plan is None:
            found[signature.name] = symbols
        else:
            _walk(one_iteration(plan), signature, symbols, manifest.regions, found)
    return found


def _walk(
    plan: Plan, signature: Signature, symbols: Symbols, regions: Mapping[str, Signature], found: dict[str, Symbols]
) -> None:
    shapes: dict[int, Shape] = {
        number: shape_of(spec, symbols, signature.name)
        for number, spec in zip(plan.inputs, signature.inputs, strict=True)
    }
    for step in plan.steps:
        if step.op == "transfer":
            shapes[step.results[0]] = shapes[step.operands[0]]
            continue
        region = regions[step.region]
        own = {s.name: shapes[step.operands[s.input]].extents[s.axis] for s in region.symbols}
        found.setdefault(step.region, own)
        for number, spec in zip(step.results, region.results, strict=True):
            shapes[number] = shape_of(spec, own, step.region)


def random_inputs(signature: Signature, symbols: Symbols) -> list[np.ndarray]:
    """An array for each input: standard normal numbers; zeros and ones for integers, which may be indices."""
    random = np.random.default_rng(0)
    arrays: list[np.ndarray] = []
    for spec in signature.inputs:
        shape = shape_of(spec, symbols, signature.name)
        if shape.dtype.kind in "biu":
            arrays.append(random.integers(0, 2, shape.extents).astype(shape.dtype))
        else:
            arrays.append(np.asarray(random.standard_normal(shape.extents)).astype(shape.dtype))
    return arrays
