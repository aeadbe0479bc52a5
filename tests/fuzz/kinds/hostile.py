"""Malformed and extreme ONNX models: those of random graphs, with one to three things changed.

Right is a program that compiles and takes calls, or a refusal in one line, within the memory and time of small models.
"""

from __future__ import annotations

import gc
import math
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from tests.fuzz import calls
from tests.fuzz.as_onnx import onnx_model
from tests.fuzz.compiling import Options, compile_program, load_program
from tests.fuzz.drawing import draw_graph
from tests.fuzz.graph import Graph
from tests.fuzz.kinds.attempts import judged
from tests.fuzz.trial import Outcome, Say

_MOST = 12 << 30  # bytes of address space that one model may take
_NUMBERS = (0, -1, 1, 2, 7, 64, 1000, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63))
_NAMES = ("", "x0", "p0_v0", "a b", "ä", "\n", "x" * 70_000, "../../x", "%s", "\0", "p0_x0", "🦜")
_OPERATORS = tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
Change = Callable[[random.Random, onnx.ModelProto], None]


def _node(rng: random.Random, model: onnx.ModelProto) -> Any:
    return rng.choice(model.graph.node)


def _change_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        _add_attribute(rng, model)
        return
    attribute = rng.choice(rng.choice(nodes).attribute)
    if attribute.ints and rng.random() < 0.8:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
        if rng.random() < 0.3:
            attribute.ints.extend([rng.choice(_NUMBERS)] * rng.choice((1, 2, 300)))
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(_NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice((float("nan"), float("inf"), -0.0, 1e-45, 3e38))
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice(_NAMES).encode()
    else:
        attribute.type = rng.randrange(0, 15)


def _add_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    schema = onnx.defs.get_schema(node.op_type, model.opset_import[0].version) if _is_known(node, model) else None
    names = list(schema.attributes) if schema is not None else []
    name = rng.choice([*names, "axis", "axes", "unknown", "", "group", "to"])
    value = rng.choice((rng.choice(_NUMBERS), [rng.choice(_NUMBERS)] * rng.randrange(4), 0.5, "text"))
    kind = onnx.AttributeProto.INTS if value == [] else None
    node.attribute.append(onnx.helper.make_attribute(name, value, attr_type=kind))


def _is_known(node: Any, model: onnx.ModelProto) -> bool:
    try:
        onnx.defs.get_schema(node.op_type, model.opset_import[0].version)
    except (onnx.defs.SchemaError, TypeError):  # a version beyond 32 bits
        return False
    return True


def _change_operand(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    values = [name for each in model.graph.node for name in (*each.input, *each.output)] + list(_NAMES)
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice(values)
    elif rng.random() < 0.5:
        node.input.append(rng.choice(values))
    elif node.input:
        del node.input[rng.randrange(len(node.input))]


def _change_result(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    values = [name for each in model.graph.node for name in each.output] + list(_NAMES)
    if node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(values)
    if rng.random() < 0.3:
        node.output.append(rng.choice(values))


def _change_operator(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    node.op_type = rng.choice((*_OPERATORS, *_NAMES))
    if rng.random() < 0.2:
        node.domain = rng.choice(("ai.onnx.ml", "com.microsoft", "none.such", "ai.onnx"))


def _change_order(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    if rng.random() < 0.4:
        nodes.append(rng.choice(nodes))
    elif rng.random() < 0.3:
        nodes.remove(rng.choice(nodes))
    rng.shuffle(nodes)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _change_type(rng: random.Random, model: onnx.ModelProto) -> None:
    infos = [*model.graph.input, *model.graph.output]
    if not infos:
        return
    kind = rng.choice(infos).type.tensor_type
    choice = rng.random()
    if choice < 0.3:
        kind.elem_type = rng.choice((0, 1, 2, 6, 7, 8, 9, 10, 11, 14, 16, 17, 21, 22, 23, 99))
    elif choice < 0.8 and kind.shape.dim:
        kind.shape.dim[rng.randrange(len(kind.shape.dim))].dim_value = rng.choice(_NUMBERS)
    elif choice < 0.9:
        for _ in range(rng.choice((1, 2, 70, 3000))):
            kind.shape.dim.add().dim_value = rng.choice((1, 2))
    else:
        kind.ClearField("shape")


def _change_constant(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    choice = rng.random()
    count = math.prod(tensor.dims)
    if choice < 0.5 and tensor.data_type in (6, 7) and len(tensor.raw_data) == count * (tensor.data_type - 5) * 4:
        values = onnx.numpy_helper.to_array(tensor).copy()
        if values.size:
            limits = np.iinfo(values.dtype)
            number = min(max(rng.choice(_NUMBERS), limits.min), limits.max)
            values.reshape(-1)[rng.randrange(values.size)] = number
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    elif choice < 0.7 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
    elif choice < 0.8:
        tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]
    elif choice < 0.9:
        tensor.data_type = rng.randrange(0, 25)
    else:
        model.graph.initializer.remove(tensor)


def _change_interface(rng: random.Random, model: onnx.ModelProto) -> None:
    group = rng.choice((model.graph.input, model.graph.output))
    if not group:
        return
    info = rng.choice(group)
    choice = rng.random()
    if choice < 0.4:
        info.name = rng.choice(_NAMES)
    elif choice < 0.7:
        group.append(onnx.ValueInfoProto.FromString(info.SerializeToString()))
    else:
        group.remove(info)


def _change_version(rng: random.Random, model: onnx.ModelProto) -> None:
    if rng.random() < 0.7:
        model.opset_import[0].version = rng.choice((0, 1, 5, 7, 9, 11, 13, 17, 24, 99, 2**62))
    elif rng.random() < 0.5:
        model.ir_version = rng.choice((0, 1, 3, 99))
    else:
        model.opset_import.append(onnx.helper.make_opsetid(rng.choice(("", "x")), rng.choice((0, 11, 18))))


CHANGES: tuple[Change, ...] = (
    _change_attribute, _change_attribute, _add_attribute, _change_operand, _change_result, _change_operator,
    _change_order, _change_type, _change_type, _change_constant, _change_interface, _change_version,
)  # fmt: skip


def _drawn(seed: int) -> tuple[Graph, bytes]:
    """The graph, and the bytes of its changed model."""
    rng = random.Random(f"hostile {seed}")
    graph = next(g for k in range(100) if (g := draw_graph(seed + 10**9 * k, rng.choice((18, 20, 22)))).nodes)
    model = onnx.ModelProto.FromString(onnx_model([graph]))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if model.graph.node:
            rng.choice(CHANGES)(rng, model)
    data = bytearray(model.SerializeToString())
    if rng.random() < 0.08:
        if rng.random() < 0.5:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return graph, bytes(data)


def attempt(seed: int, say: Say) -> Outcome:
    graph, model = _drawn(seed)
    outcome = Outcome(language="onnx")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + _MOST, before[1]))
    try:
        with judged(outcome):
            say(f"compile [{seed}]")
            artifact = compile_program(model, "onnx", Options())
            say(f"call 0 [{seed}]")
            with load_program(artifact, Options()) as session:
                outcome.calls += 1
                session(*calls.feeds(graph, 0, graph.symbols).values())
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        gc.collect()  # as workers do: the tensors of a model that was refused for its memory
    return outcome


def _address_space() -> int:
    """The bytes that this process has reserved: with libraries and threads of earlier programs tens of GiB."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def show(seed: int) -> str:
    try:
        return onnx.printer.to_text(onnx.ModelProto.FromString(_drawn(seed)[1]))
    except (DecodeError, UnicodeDecodeError):
        return f"{len(_drawn(seed)[1])} bytes that are no model"


