"""Models on a caller's OpenCL queue: parts compiled by Motet, and the rest by OpenVINO's GPU plug-in, in turn.

    steps:   OpenVINO (remote tensors)  →  Motet (session.enqueue)  →  OpenVINO  →  …
    memory:  every value between steps is a `cl_mem` of the queue's context, which both read and write in place

The plug-in runs no operations in Python, so a model is divided into models that run one after the other on one
in-order queue, and no value is copied between them.
"""

# openvino need not be installed, and has no types for its bindings.
# Where it is not installed, pyright takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import openvino as ov

from motet.errors import CallError, CompileError, OptionError
from motet.graphs.order import bit_set, members
from motet.graphs.parts import partition
from motet.openvino.call import MotetCall
from motet.openvino.compiling import SMALLEST, lowering_for, own_copy
from motet.openvino.cut import AS_THEY_ARE, CutModel, is_constant
from motet.openvino.operations import Subgraph, identity
from motet.openvino.remote import RemoteContext
from motet.openvino.replace import replace_parts
from motet.openvino.report import Report
from motet.openvino.runner import Runner
from motet.openvino.settings import PRECISION, spelled
from motet.runtime.drivers.opencl.handles import OpenClBuffer, empty, handle_of
from motet.runtime.drivers.opencl.objects import load_objects
from motet.runtime.session import load

HINTS = ("f32", "f16")
_QUEUE_PROPERTIES, _OUT_OF_ORDER = 0x1093, 1

Key = tuple[Any, int]  # of a value: its operation, and the number of the result
Put = Callable[[Sequence[OpenClBuffer], Sequence[OpenClBuffer]], None]


@dataclass(frozen=True)
class QueuedStep:
    """A part of the model, from the values `inputs` to the values `outputs`; `put` puts it on the queue."""

    inputs: list[Key]
    outputs: list[Key]
    put: Put


@dataclass
class QueuedModel:
    """A model on a caller's queue. `specs` are the element type and the shape of each value; `steps` run in order."""

    queue: int
    steps: list[QueuedStep]
    inputs: list[Key]
    results: list[Key]
    specs: Mapping[Key, tuple[Any, tuple[int, ...]]]
    report: Report
    _between: dict[Key, OpenClBuffer] = field(default_factory=dict[Key, OpenClBuffer])

    def __call__(self, *arguments: OpenClBuffer, out: Sequence[OpenClBuffer] | None = None) -> list[OpenClBuffer]:
        """Put a call on the queue. `arguments` and `out` are `opencl.Buffer`s in `cl_mem`, in the model's order;
        without `out`, results are new ones. Returns the results; `buffer.read(queue)` waits for them. Calls must come
        from one thread at a time. Raises CallError for other buffers, DeviceError."""
        values = dict(zip(self.inputs, self._checked(arguments, self.inputs, "argument"), strict=True))
        given = [self._new(key) for key in self.results] if out is None else self._checked(out, self.results, "out")
        values.update(zip(self.results, given, strict=True))
        for step in self.steps:
            for key in step.outputs:
                if key not in values:
                    values[key] = self._between.get(key) or self._between.setdefault(key, self._new(key))
            step.put([values[key] for key in step.inputs], [values[key] for key in step.outputs])
        return given

    def _new(self, key: Key) -> OpenClBuffer:
        kind, shape = self.specs[key]
        return empty(self.queue, "cl_mem", shape, kind.to_dtype())

    def _checked(self, given: Sequence[OpenClBuffer], keys: Sequence[Key], what: str) -> list[OpenClBuffer]:
        if len(given) != len(keys):
            raise CallError(f"{what}: {len(given)} buffers given; expected {len(keys)}")
        for index, (buffer, key) in enumerate(zip(given, keys, strict=True)):
            kind, shape = self.specs[key]
            is_buffer = type(buffer) is OpenClBuffer and buffer.kind == "cl_mem"
            if not is_buffer or buffer.shape != shape or buffer.dtype != kind.to_dtype():
                wanted = "x".join([*map(str, shape), kind.get_type_name()])
                raise CallError(f"{what} {index}: {buffer!r} given; expected an opencl.Buffer of {wanted} in cl_mem")
        return list(given)


# Parameters: the caller's choices, by keyword.
def compile_on_queue(
    model: Any,
    queue: Any,
    hint: Any = "f32",
    *,
    device: str = "opencl",
    options: Mapping[str, str | int | bool] | None = None,
    smallest: int = SMALLEST,
) -> QueuedModel:
    """Compile `model`, as `compile_model` does, for the device of `queue`: an in-order OpenCL queue of Intel's GPU.

    Motet's parts are compiled for OpenCL and loaded on `device`, which must be the queue's. The rest is compiled by
    OpenVINO's GPU plug-in in the queue's context; `hint` is its precision, `f32` or `f16`. Shapes must be static.
    Raises OptionError for a hint, a queue or a model that this does not support, CompileError, DeviceError.
    """
    if spelled(hint) not in HINTS:
        raise OptionError(f"hint {hint!r}: no such precision on a GPU's queue; expected one of {', '.join(HINTS)}")
    facts = load_objects().queue(_handle(queue), "compile_on_queue")
    if load_objects().api.describe("CommandQueue", facts.handle, _QUEUE_PROPERTIES) & _OUT_OF_ORDER:
        raise OptionError("queue: it is out of order; expected an in-order queue, which orders the steps of a model")
    own = own_copy(ov.Core(), model)
    if own.is_dynamic():
        raise OptionError("model: its shapes are dynamic; expected static ones on a queue: model.reshape({…}) first")
    # OpenVINO runs whole bodies of branches and loops, in which its GPU plug-in has no place for a call.
    made = replace_parts(own, replace(lowering_for("f32", "opencl", options, smallest), divided=()))
    context: list[RemoteContext] = []  # made for the first part that OpenVINO computes

    def by_openvino(cut: CutModel) -> Put:
        context.extend([] if context else [RemoteContext(facts.context, facts.handle)])
        return _by_openvino(context[0], cut, spelled(hint))

    steps = _divide(own, by_openvino, lambda runner: _by_motet(runner, facts.handle, device))
    inputs = [(identity(node), 0) for node in own.get_parameters()]
    results = [_key(node.input_value(0)) for node in own.get_results()]
    _check_results(results, inputs, steps)
    return QueuedModel(facts.handle, steps, inputs, results, _specs(own), made.report)


def _divide(model: Any, by_openvino: Callable[[CutModel], Put], by_motet: Callable[[Runner], Put]) -> list[QueuedStep]:
    """The calls of `model`, and its other operations in as few connected parts as they allow, in executable order."""
    nodes = [node for node in model.get_ordered_ops() if node.get_type_name() != "Result" and not is_constant(node)]
    numbers = {identity(node): number for number, node in enumerate(nodes)}
    sources = [[identity(value.get_node()) for value in node.input_values()] for node in nodes]
    producers = [bit_set(numbers[name] for name in names if name in numbers) for names in sources]
    calls = [number for number, node in enumerate(nodes) if isinstance(node, MotetCall)]
    others = bit_set(number for number, node in enumerate(nodes)
                     if number not in calls and node.get_type_name() != "Parameter")
    constants = frozenset(identity(node) for node in model.get_ordered_ops() if is_constant(node))
    steps: list[QueuedStep] = []
    for number in calls:
        call = nodes[number]
        if any(is_constant(value.get_node()) for value in call.input_values()):
            raise CompileError(f"{call.get_friendly_name()}: it reads a constant that OpenVINO computes; expected "
                               "operations on constants that OpenVINO can fold")
        reads, writes = [_key(value) for value in call.input_values()], [_key(value) for value in call.outputs()]
        steps.append(QueuedStep(reads, writes, by_motet(call.runner)))
    for index, part in enumerate(partition(producers, others)):
        inside = Subgraph(tuple(nodes[number] for number in members(part)), 0, constants)
        cut = CutModel(inside, f"openvino{index}", AS_THEY_ARE)
        reads, writes = [_key(value) for value in cut.inputs], [_key(value) for value in cut.outputs]
        steps.append(QueuedStep(reads, writes, by_openvino(cut)))
        cut.undo()
    return _in_order(steps)


def _in_order(steps: Sequence[QueuedStep]) -> list[QueuedStep]:
    """The steps, each after those whose values it reads."""
    ordered: list[QueuedStep] = []
    waiting = list(steps)
    while waiting:
        open_keys = {key for step in waiting for key in step.outputs}
        ready = [step for step in waiting if open_keys.isdisjoint(step.inputs)]
        assert ready, "parts of a model are acyclic"
        ordered += ready
        waiting = [step for step in waiting if step not in ready]
    return ordered


def _by_motet(runner: Runner, queue: int, device: str) -> Put:
    session = load(runner.artifact, devices=device)

    def put(inputs: Sequence[OpenClBuffer], outputs: Sequence[OpenClBuffer]) -> None:
        session.enqueue(*inputs, out=tuple(outputs), stream=queue)

    return put


def _by_openvino(context: RemoteContext, cut: CutModel, hint: str) -> Put:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.xml"
        ov.save_model(cut.model, path, compress_to_fp16=False)
        request = context.compile(path, {PRECISION: hint})
    kinds = [[value.get_element_type().get_type_name() for value in side] for side in (cut.inputs, cut.outputs)]

    def put(inputs: Sequence[OpenClBuffer], outputs: Sequence[OpenClBuffer]) -> None:
        request.run(list(zip(inputs, kinds[0], strict=True)), list(zip(outputs, kinds[1], strict=True)))

    return put


def _check_results(results: Sequence[Key], inputs: Sequence[Key], steps: Sequence[QueuedStep]) -> None:
    computed = {key for step in steps for key in step.outputs}
    for index, key in enumerate(results):
        if key not in computed or key in results[:index]:
            what = "an input" if key in inputs else "another result" if key in computed else "a constant"
            raise CompileError(f"result {index} is {what}; on a queue, expected a value that only this result has")


def _specs(model: Any) -> dict[Key, tuple[Any, tuple[int, ...]]]:
    values = [value for node in model.get_ordered_ops() for value in node.outputs()]
    return {_key(value): (value.get_element_type(), tuple(value.get_shape())) for value in values}


def _key(value: Any) -> Key:
    return identity(value.get_node()), value.get_index()


def _handle(queue: Any) -> int:
    found = handle_of(queue)
    if found is None:
        raise OptionError(f"queue: {type(queue).__name__} given; expected a command queue: pyopencl's, or a handle")
    return found
