"""Models of timm, transformers and torchvision by OpenVINO's own converter, compared with OpenVINO's results in f32.

A case `NAME` has the extents of its example inputs, `NAME, dynamic` those that the converter leaves open. A model that
is refused as a whole is compiled in parts by `motet.openvino.compile_model`, and its results are compared, too; the
reason of the refusal then begins with `IN_PARTS`.
"""

# torch and openvino may not be installed, and much of them has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import motet
from conformance.comparing import compare
from conformance.results import Wrong
from motet.errors import CompileError, MotetError

DYNAMIC = ", dynamic"
IN_PARTS = "equal in parts"
NOT_CONVERTED = "OpenVINO's converter refuses it"
_STRIDE = 4  # of as many models one is also read with dynamic extents
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4  # both sides compute in f32, and sum in different orders


@functools.cache
def _architectures() -> dict[str, Any]:
    import torch
    import transformers

    from conformance import architectures_timm, architectures_torchvision, architectures_transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    every = (*architectures_timm.ARCHITECTURES, *architectures_transformers.ARCHITECTURES,
             *architectures_torchvision.ARCHITECTURES)
    return {one.name: one for one in every}


def cases(suite: str) -> list[str]:
    """The names of the models, some of them twice."""
    names = list(_architectures())
    return [*names, *(f"{name}{DYNAMIC}" for name in names[::_STRIDE])]


def check(suite: str, case: str) -> None:
    """Convert, compile and run a case."""
    import openvino

    model, inputs = converted(_architectures()[case.removesuffix(DYNAMIC)])
    if not case.endswith(DYNAMIC):
        model.reshape({place: list(array.shape) for place, array in enumerate(inputs)})
    run = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    calculated = run(inputs)
    wanted = [np.array(calculated[place]) for place in range(len(model.outputs))]
    try:
        found = motet.load(motet.compile(model, devices="host{cpu=native}", cache=False))(*inputs)
    except MotetError as error:
        raise CompileError(f"{_in_parts(model, inputs, wanted)}: {error}") from None
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    compare([np.asarray(each) for each in results], wanted, _RELATIVE, _ABSOLUTE)


def _in_parts(model: Any, inputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
    """Runs the model in OpenVINO's pipeline with parts compiled by Motet. Returns what Motet computes of it."""
    import motet.openvino

    compiled = motet.openvino.compile_model(model, "CPU", "f32")
    calculated = compiled(list(inputs))
    try:
        compare([np.array(calculated[place]) for place in range(len(wanted))], wanted, _RELATIVE, _ABSOLUTE)
    except Wrong as difference:
        raise Wrong(f"in parts: {difference}") from None
    parts = compiled.report.replaced
    inside = sum(part.types.total() for part in parts)
    return f"{IN_PARTS}, {inside} of {inside + len(compiled.report.left)} operations in {len(parts)} calls"


def converted(architecture: Any) -> tuple[Any, list[np.ndarray]]:
    """An architecture as a model of OpenVINO, and arrays for its inputs. Raises CompileError where its converter fails
    both with the traced and with the exported module."""
    import torch

    torch.manual_seed(0)
    module, inputs = architecture.build()
    example: Any = dict(inputs) if isinstance(inputs, Mapping) else tuple(inputs)
    named = example if isinstance(inputs, Mapping) else {}
    with torch.no_grad():
        try:
            model = _convert(module.eval().float(), example)
        except CompileError:
            program = torch.export.export(module, () if named else example, named)
            model = _convert(program, None)
    return model, _arrays(model, example)


def _convert(source: Any, example: Any) -> Any:
    import openvino

    try:
        return openvino.convert_model(source, **({} if example is None else {"example_input": example}))
    except Exception as error:  # of any class: torch's tracing, the model's own code, the converter
        raise CompileError(f"{NOT_CONVERTED}: {type(error).__name__}: {error}") from None


def _arrays(model: Any, example: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray]:
    if not isinstance(example, Mapping):
        return [each.numpy() for each in example]
    left = dict(example)
    found: list[np.ndarray] = []
    for given in model.inputs:
        name = next((name for name in given.get_names() if name in left), next(iter(left)))
        found.append(left.pop(name).numpy())
    return found
