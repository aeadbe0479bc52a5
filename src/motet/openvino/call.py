"""The operation of OpenVINO that calls a function compiled by Motet.

Its last input is the artifact, a constant of bytes: a model that is saved contains its code, and a process without a
compiler runs it: `core.add_extension(motet.openvino.MotetCall)`.
"""

# openvino need not be installed, and has no types for its bindings.
# Where it is not installed, pyright takes this package for it.
# pyright: reportUntypedBaseClass=false, reportMissingImports=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import openvino as ov

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate, is_increasing, symbols_of
from motet.artifact.reader import Artifact
from motet.artifact.schema import Expr, Signature
from motet.errors import CallError
from motet.openvino.operations import bodies_of
from motet.openvino.runner import Runner


class MotetCall(ov.Op):
    """Calls a compiled function on OpenVINO's tensors. `inputs` are its arguments and the artifact. Operations that
    OpenVINO makes from this one, for streams or other shapes, share its `runner`. `part` is different for every part of
    a model: OpenVINO merges operations of one type whose inputs and attributes are equal."""

    def __init__(self, inputs: Sequence[Any] | None = None, runner: Runner | None = None, part: str = "") -> None:
        super().__init__(self)
        self.runner = runner
        self.part = part
        if inputs is not None:
            self.set_arguments([inputs[index] for index in range(len(inputs))])
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        """Sets types and shapes of the results; extents that are not known yet are dynamic."""
        runner = self.runner = self.runner or _read_runner(self)
        specs = runner.signature.inputs
        given = self.get_input_size()
        if given not in (len(specs), len(specs) + 1):
            raise CallError(f"{self.get_friendly_name()}: {given} inputs; expected {len(specs)}, and the artifact")
        shapes = [_extents(self.get_input_partial_shape(i), len(spec.shape)) for i, spec in enumerate(specs)]
        self.set_output_size(len(runner.signature.results))
        for index, (spec, shape) in enumerate(
            zip(runner.signature.results, runner.result_extents(shapes), strict=True)
        ):
            extents = [self._bounds(named, runner.signature) if extent is None else ov.Dimension(extent)
                       for extent, named in zip(shape, spec.shape, strict=True)]
            self.set_output_type(index, ov.Type(DTYPES[spec.dtype]), ov.PartialShape(extents))

    def _bounds(self, extent: Expr, signature: Signature) -> Any:
        """A result's dynamic extent, with the bounds that follow from those of the inputs."""
        shapes = [self.get_input_partial_shape(symbol.input) for symbol in signature.symbols]
        if any(shape.rank.is_dynamic for shape in shapes) or not is_increasing(extent):
            return ov.Dimension()
        given = {each.name: shape[each.axis] for each, shape in zip(signature.symbols, shapes, strict=True)}
        used = {name: given.get(name, ov.Dimension()) for name in symbols_of(extent)}  # others follow from values
        bounded = all(each.max_length >= 0 for each in used.values())
        try:
            least = max(0, evaluate(extent, {name: each.min_length for name, each in used.items()}))
            most = evaluate(extent, {name: each.max_length for name, each in used.items()}) if bounded else -1
        except CallError:  # too large
            return ov.Dimension()
        return ov.Dimension(least, most)

    def clone_with_new_inputs(self, new_inputs: Sequence[Any]) -> MotetCall:
        return MotetCall(new_inputs, self.runner, self.part)

    def visit_attributes(self, visitor: Any) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Compares or writes the attributes, or reads them from a file."""
        attributes = {"part": self.part}
        visitor.on_attributes(attributes)
        self.part = attributes["part"]
        return True

    def has_evaluate(self) -> bool:
        return True

    def evaluate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, outputs: Sequence[Any], inputs: Sequence[Any]
    ) -> bool:
        """Computes `outputs`. OpenVINO calls it on a thread that it chooses."""
        runner = self.runner
        assert runner is not None, "an operation is validated before it is evaluated"
        # By number: the iterators of OpenVINO's lists end by a C++ exception, which takes longer than small calls.
        arguments = [inputs[index].data for index in runner.arguments]
        shapes = runner.result_shapes(tuple([argument.shape for argument in arguments]))
        if shapes is None:
            for index, value in enumerate(runner.run_unshaped(arguments)):
                tensor = outputs[index]
                tensor.shape = list(value.shape)
                np.copyto(tensor.data, value)
            return True
        results: list[Any] = []
        for index, shape in enumerate(shapes):
            array = outputs[index].data
            if array.shape != shape:
                outputs[index].shape = list(shape)
                array = outputs[index].data
            results.append(array)
        runner.run(arguments, results)
        return True


def calls_in(model: Any) -> Iterator[MotetCall]:
    """The calls in a model and in the bodies of its operations."""
    for node in model.get_ordered_ops():
        if isinstance(node, MotetCall):
            yield node
        for body in bodies_of(node):
            yield from calls_in(body)


def _read_runner(operation: MotetCall) -> Runner:
    """The runner of an operation that was read from a file."""
    count, name = operation.get_input_size(), operation.get_friendly_name()
    last = operation.input_value(count - 1).get_node() if count else None
    if last is None or last.get_type_name() != "Constant":
        raise CallError(f"{name}: its last input is no constant; expected an artifact of Motet")
    return Runner(Artifact.from_bytes(memoryview(last.data).cast("B"), name=name))


def _extents(shape: Any, rank: int) -> list[int | None]:
    if shape.is_static:
        extents = shape.get_shape()
        return [extents[axis] for axis in range(rank)]
    if shape.rank.is_dynamic:
        return [None] * rank
    dimensions = [shape[axis] for axis in range(rank)]
    return [None if dimension.is_dynamic else dimension.get_length() for dimension in dimensions]
