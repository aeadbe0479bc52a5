"""Models of timm and transformers through OpenVINO's own converter, compared with OpenVINO's results in f32.

A case `NAME` has the extents of its example inputs, `NAME, dynamic` those that the converter leaves open. A model that
is refused tells how many of its operators have a lowering: OpenVINO can keep the others.
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
from motet.errors import CompileError

_DYNAMIC = ", dynamic"
_STRIDE = 4  # of as many models one is also read with dynamic extents
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4  # both sides compute in f32, and sum in different orders


@functools.cache
def _architectures() -> dict[str, Any]:
    import torch
    import transformers

    from conformance import architectures_timm, architectures_transformers, torchvision_operators

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torchvision_operators.declare()
    return {one.name: one for one in (*architectures_timm.ARCHITECTURES, *architectures_transformers.ARCHITECTURES)}


def cases(suite: str) -> list[str]:
    """The names of the models, some of them twice."""
    names = list(_architectures())
    return [*names, *(f"{name}{_DYNAMIC}" for name in names[::_STRIDE])]


def check(suite: str, case: str) -> None:
    """Convert, compile and run a case."""
    import openvino

    model, inputs = converted(_architectures()[case.removesuffix(_DYNAMIC)])
    if not case.endswith(_DYNAMIC):
        model.reshape({place: list(array.shape) for place, array in enumerate(inputs)})
    run = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    calculated = run(inputs)
    wanted = [np.array(calculated[place]) for place in range(len(model.outputs))]
    try:
        artifact = motet.compile(model, devices="host{cpu=native}", cache=False)
    except CompileError as error:
        raise CompileError(f"{error}; {_parts(model)}") from None
    found = motet.load(artifact)(*inputs)
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    compare([np.asarray(each) for each in results], wanted, _RELATIVE, _ABSOLUTE)


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
        raise CompileError(f"OpenVINO's converter refuses it: {type(error).__name__}: {error}") from None


def _arrays(model: Any, example: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray]:
    if not isinstance(example, Mapping):
        return [each.numpy() for each in example]
    left = dict(example)
    found: list[np.ndarray] = []
    for given in model.inputs:
        name = next((name for name in given.get_names() if name in left), next(iter(left)))
        found.append(left.pop(name).numpy())
    return found


def _parts(model: Any) -> str:
    """How many operators of a model have a lowering."""
    from motet.compiler.frontends.openvino.translate import supported

    operators = [node for node in model.get_ordered_ops() if node.get_type_name() not in
                 ("Parameter", "Result", "Constant")]
    able = sum(supported(node) is None for node in operators)
    return f"{able} of {len(operators)} operators have a lowering"
