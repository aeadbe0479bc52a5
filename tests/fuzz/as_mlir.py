"""Writes graphs as linalg on tensors, a function for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tests.fuzz.dtypes import UNSIGNED, is_float
from tests.fuzz.graph import Array, Extent, Graph, Node
from tests.fuzz.scalars import SCALARS, body_of, element
from tests.fuzz.shapes import types_of
from tests.fuzz.tracked import Tracked

_MOVES = frozenset({"Transpose", "Expand", "Slice", "Pad", "Concat", "Unsqueeze", "Squeeze", "Identity", "Reshape"})
_SUMS = frozenset({"ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"})
OPERATORS = frozenset(SCALARS) | _MOVES | _SUMS | {"MatMul", "Einsum", "linalg.generic", "Softmax"}


def says(
    op: str, attributes: Mapping[str, Any], operands: Sequence[Tracked | None], results: Sequence[Tracked]
) -> bool:
    """Whether this form of an operator is written here."""
    if op in _SUMS:
        return len(operands) > 1 and not attributes.get("keepdims", 1)
    if op == "Slice":
        steps = operands[4]
        return steps is not None and bool((steps.value > 0).all())
    if op == "Pad":
        return attributes.get("mode", "constant") == "constant" and operands[1] is not None and bool(
            (operands[1].value >= 0).all() and (operands[1].value.size == 2 * len(results[0].shape))
        )
    if op == "Max" or op == "Min":
        return len(operands) == 2
    if op == "Einsum":
        return _is_plain(attributes["equation"])
    if op == "Clip":
        return all(operand is not None for operand in operands) and len(operands) == 3
    if op == "Cast" and operands[0] is not None:
        return not (operands[0].is_float and attributes["to"] in UNSIGNED)
    return True


def _is_plain(equation: str) -> bool:
    return all(len(set(term)) == len(term) for term in equation.replace("->", ",").split(","))


def mlir_module(graphs: Sequence[Graph]) -> str:
    return "\n".join(Writer(graph, f"p{number}").function() for number, graph in enumerate(graphs))


class Writer:
    """One function, line by line; `constant` is the operation that makes a constant."""

    constant = "arith.constant"

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name
        self.types = types_of(graph)
        self.lines: list[str] = []
        self.count = 0

    def function(self) -> str:
        arguments = ", ".join(f"%{i.name}: {self.type(i.name)}" for i in self.graph.inputs)
        self._extents()
        for name, array in self.graph.constants.items():
            self.say(f"%{name} = {self.constant} {dense(array, self.dtype(name))} : {self.type(name)}")
        for node in self.graph.nodes:
            self.write(node)
        results = ", ".join(f"%{r}" for r in self.graph.results)
        kinds = ", ".join(self.type(r) for r in self.graph.results)
        last = f"return {results} : {kinds}"
        body = "\n".join(f"  {line}" for line in [*self.lines, last])
        return f"func.func @{self.name}({arguments}) -> ({kinds}) {{\n{body}\n}}"

    def write(self, node: Node) -> None:
        _WRITERS[node.op](self, node) if node.op in _WRITERS else write_scalar(self, node)

    def _extents(self) -> None:
        """The extents that the call decides, each of the first input that has it."""
        for symbol in self.graph.symbols:
            entry = next(i for i in self.graph.inputs if symbol in i.shape)
            axis = entry.shape.index(symbol)
            self.say(f"%axis_{symbol} = arith.constant {axis} : index")
            self.say(f"%{symbol} = tensor.dim %{entry.name}, %axis_{symbol} : {self.type(entry.name)}")

    # -- pieces ------------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        self.lines.append(line)

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def shape(self, name: str) -> tuple[Extent, ...]:
        return tuple(e if e is not None else "?" for e in self.types[name][1])

    def dtype(self, name: str) -> str:
        return self.types[name][0]

    def type(self, name: str) -> str:
        return tensor(self.dtype(name), self.shape(name))

    def empty(self, dtype: str, shape: Sequence[Extent]) -> str:
        name = self.fresh()
        dynamic = ", ".join(f"%{e}" for e in shape if isinstance(e, str))
        self.say(f"{name} = tensor.empty({dynamic}) : {tensor(dtype, shape)}")
        return name

    def filled(self, dtype: str, shape: Sequence[Extent], value: str) -> str:
        scalar, empty, name = self.fresh(), self.empty(dtype, shape), self.fresh()
        kind = element(dtype)
        self.say(f"{scalar} = arith.constant {value} : {kind}")
        self.say(f"{name} = linalg.fill ins({scalar} : {kind}) outs({empty} : {tensor(dtype, shape)}) "
                 f"-> {tensor(dtype, shape)}")
        return name

    def generic(
        self, result: str, maps: Sequence[str], iterators: Sequence[str], inputs: Sequence[str], start: str,
        body: Sequence[str], loops: int,
    ) -> None:
        """A linalg.generic into the value `result`, which begins as `start`; in the body, operands are %a0, … and what
        is there %out."""
        dims = ", ".join(f"d{k}" for k in range(loops))
        shown = ", ".join(f"affine_map<({dims}) -> ({one})>" for one in maps)
        kinds = ", ".join(f'"{kind}"' for kind in iterators)
        ins = f"ins({', '.join(f'%{i}' for i in inputs)} : {', '.join(map(self.type, inputs))}) " if inputs else ""
        kinds_of = [f"%a{k}: {element(self.dtype(i))}" for k, i in enumerate(inputs)]
        arguments = ", ".join([*kinds_of, f"%out: {element(self.dtype(result))}"])
        self.say(f"%{result} = linalg.generic {{indexing_maps = [{shown}], iterator_types = [{kinds}]}} {ins}"
                 f"outs({start} : {self.type(result)}) {{")
        self.say(f"^bb0({arguments}):")
        for line in body:
            self.say(f"  {line}")
        self.say(f"}} -> {self.type(result)}")


def tensor(dtype: str, shape: Sequence[Extent]) -> str:
    extents = "".join(f"{'?' if isinstance(e, str) else e}x" for e in shape)
    return f"tensor<{extents}{element(dtype)}>"


def literal(value: Any, dtype: str) -> str:
    """One element, as MLIR reads it: floats that are special by their bits."""
    if dtype == "bool":
        return "true" if value else "false"
    if not is_float(dtype):
        return str(int(value))
    number = float(value)
    if math.isfinite(number) and number == np.float32(number) and dtype != "f64":
        return f"{number:.17e}"
    if dtype == "f64" and math.isfinite(number):
        return f"{number:.17e}"
    bits = np.asarray(value).reshape(1).view({2: np.uint16, 4: np.uint32, 8: np.uint64}[np.asarray(value).itemsize])[0]
    return f"0x{int(bits):0{2 * np.asarray(value).itemsize}X}"


def dense(array: Array, dtype: str) -> str:
    def listed(part: Array) -> str:
        if part.ndim == 0:
            return literal(part[()], dtype)
        return "[" + ", ".join(listed(p) for p in part) + "]"

    if not array.size:
        return "dense<>"
    return f"dense<{listed(array)}>"


def aligned(shape: Sequence[Extent], result: Sequence[Extent]) -> str:
    """The map of an operand that is broadcast to the result."""
    behind = len(result) - len(shape)
    return ", ".join(
        "0" if e == 1 and result[behind + axis] != 1 else f"d{behind + axis}" for axis, e in enumerate(shape)
    )


def identity(rank: int) -> str:
    return ", ".join(f"d{k}" for k in range(rank))


# -- operators -------------------------------------------------------------------------------------


def write_scalar(w: Writer, node: Node) -> None:
    """An operator on each element."""
    result = node.outputs[0]
    shape = w.shape(result)
    operands = [name for name in node.inputs if name]
    maps = [*(aligned(w.shape(name), shape) for name in operands), identity(len(shape))]
    body = body_of(node, [w.dtype(name) for name in operands], w.dtype(result))
    w.generic(result, maps, ["parallel"] * len(shape), operands, w.empty(w.dtype(result), shape), body, len(shape))


def _moved(w: Writer, node: Node, map_of_input: str) -> None:
    result = node.outputs[0]
    shape = w.shape(result)
    w.generic(result, [map_of_input, identity(len(shape))], ["parallel"] * len(shape), [node.inputs[0]],
              w.empty(w.dtype(result), shape), [f"linalg.yield %a0 : {element(w.dtype(result))}"], len(shape))


def _transpose(w: Writer, node: Node) -> None:
    result, source = node.outputs[0], node.inputs[0]
    rank = len(w.shape(source))
    order = node.attributes.get("perm") or list(reversed(range(rank)))
    if w.graph.seed % 2:
        empty = w.empty(w.dtype(result), w.shape(result))
        w.say(f"%{result} = linalg.transpose ins(%{source} : {w.type(source)}) outs({empty} : {w.type(result)}) "
              f"permutation = {order}")
        return
    _moved(w, node, ", ".join(f"d{order.index(axis)}" for axis in range(rank)))


def _expand(w: Writer, node: Node) -> None:
    _moved(w, node, aligned(w.shape(node.inputs[0]), w.shape(node.outputs[0])))


def _identity(w: Writer, node: Node) -> None:
    _moved(w, node, identity(len(w.shape(node.outputs[0]))))


def _unit_axes(w: Writer, node: Node) -> None:
    """Squeeze, Unsqueeze: through a reshape whose shape is a constant, or a tensor of extents."""
    result, source = node.outputs[0], node.inputs[0]
    shape = w.shape(result)
    extents: list[str] = []
    for e in shape:
        name = w.fresh()
        w.say(f"{name} = arith.constant {e} : index" if not isinstance(e, str) else
              f"{name} = arith.addi %{e}, %{e} : index")
        if isinstance(e, str):
            w.lines.pop()
            name = f"%{e}"
        extents.append(name)
    vector = w.fresh()
    if shape:
        w.say(f"{vector} = tensor.from_elements {', '.join(extents)} : tensor<{len(shape)}xindex>")
    else:
        w.say(f"{vector} = arith.constant dense<> : tensor<0xindex>")
    w.say(f"%{result} = tensor.reshape %{source}({vector}) : ({w.type(source)}, tensor<{len(shape)}xindex>) "
          f"-> {w.type(result)}")


def _slice(w: Writer, node: Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    begins, ends, axes, steps = (w.graph.constants[name].tolist() for name in node.inputs[1:5])
    rank = len(w.shape(source))
    offset: list[int | str] = [0] * rank
    stride = [1] * rank
    for begin, _, axis, by in zip(begins, ends, axes, steps, strict=True):
        extent, taken = w.shape(source)[axis], w.shape(result)[axis]
        if isinstance(extent, int):
            begin = begin + extent if begin < 0 else begin
            offset[axis] = min(max(begin, 0), extent) if taken else 0
        elif isinstance(taken, int) and taken:  # else the whole is taken: there is no name for other extents
            offset[axis] = begin if begin >= 0 else _from_end(w, extent, begin)
        stride[axis] = by
    sizes = ", ".join(f"%{e}" if isinstance(e, str) else str(e) for e in w.shape(result))
    offsets = ", ".join(map(str, offset))
    w.say(f"%{result} = tensor.extract_slice %{source}[{offsets}] [{sizes}] {stride} : "
          f"{w.type(source)} to {w.type(result)}")


def _from_end(w: Writer, extent: str, begin: int) -> str:
    """The place that is so many elements before the end of a dynamic extent."""
    number, place = w.fresh(), w.fresh()
    w.say(f"{number} = arith.constant {begin} : index")
    w.say(f"{place} = arith.addi %{extent}, {number} : index")
    return place


def _pad(w: Writer, node: Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    pads = w.graph.constants[node.inputs[1]].tolist()
    rank = len(pads) // 2
    kind = element(w.dtype(result))
    given = node.inputs[2] if len(node.inputs) > 2 else ""
    fill = w.fresh()
    if given:
        w.say(f"{fill} = tensor.extract %{given}[] : {w.type(given)}")
    else:
        w.say(f"{fill} = arith.constant {literal(np.zeros((), np.float64), w.dtype(result))} : {kind}"
              if w.dtype(result) != "bool" else f"{fill} = arith.constant false")
    w.say(f"%{result} = tensor.pad %{source} low{pads[:rank]} high{pads[rank:]} {{")
    w.say(f"^bb0({', '.join(f'%i{k}: index' for k in range(rank))}):")
    w.say(f"  tensor.yield {fill} : {kind}")
    w.say(f"}} : {w.type(source)} to {w.type(result)}")


def _concat(w: Writer, node: Node) -> None:
    result = node.outputs[0]
    axis = node.attributes["axis"] % len(w.shape(result))
    kinds = ", ".join(w.type(i) for i in node.inputs)
    w.say(f"%{result} = tensor.concat dim({axis}) {', '.join(f'%{i}' for i in node.inputs)} : ({kinds}) "
          f"-> {w.type(result)}")


def _reduce(w: Writer, node: Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    dtype, rank = w.dtype(source), len(w.shape(source))
    axes = sorted({int(axis) % rank for axis in w.graph.constants[node.inputs[1]]})
    start = w.filled(dtype, w.shape(result), neutral(node.op, dtype))
    step = body_of(Node(_FOLDS[node.op], ("a", "b"), ("r",)), [dtype, dtype], dtype)
    body = [line.replace("%a1", "%out") for line in step]
    kept = [axis for axis in range(rank) if axis not in axes]
    iterators = ["reduction" if axis in axes else "parallel" for axis in range(rank)]
    w.generic(result, [identity(rank), ", ".join(f"d{k}" for k in kept)], iterators, [source], start, body, rank)


_FOLDS = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}


def neutral(op: str, dtype: str) -> str:
    """What a reduction begins with."""
    if op == "ReduceSum":
        return literal(np.zeros((), np.float64), dtype)
    if op == "ReduceProd":
        return literal(np.ones((), np.float64), dtype)
    largest = op == "ReduceMin"
    if is_float(dtype):
        bits = {"f32": "7F800000", "f16": "7C00", "bf16": "7F80", "f64": "7FF0000000000000"}[dtype]
        return f"0x{bits}" if largest else "0x" + {"7": "F"}[bits[0]] + bits[1:]
    info = np.iinfo(dtype.replace("u", "uint") if dtype[0] == "u" else dtype.replace("i", "int"))
    return str(int(info.max if largest else info.min))


def _matmul(w: Writer, node: Node) -> None:
    a, b = node.inputs
    result = node.outputs[0]
    first, second, shape = w.shape(a), w.shape(b), w.shape(result)
    start = w.filled(w.dtype(result), shape, neutral("ReduceSum", w.dtype(result)))
    if len(first) == len(second) == 2 and w.graph.seed % 3:
        w.say(f"%{result} = linalg.matmul ins(%{a}, %{b} : {w.type(a)}, {w.type(b)}) outs({start} : {w.type(result)}) "
              f"-> {w.type(result)}")
        return
    inner = f"d{len(shape)}"
    rows, columns = len(first) > 1, len(second) > 1
    batch = len(shape) - rows - columns
    lead = shape[:batch]
    one = [aligned(first[:-2], lead), *([f"d{batch}"] if rows else []), inner]
    two = [aligned(second[:-2], lead), inner, *([f"d{len(shape) - 1}"] if columns else [])]
    maps = [", ".join(p for p in part if p) for part in (one, two)]
    w.generic(result, [*maps, identity(len(shape))], ["parallel"] * len(shape) + ["reduction"], [a, b], start,
              multiply_and_add(w.dtype(result)), len(shape) + 1)


def multiply_and_add(dtype: str) -> list[str]:
    kind, suffix = element(dtype), "f" if is_float(dtype) else "i"
    return [f"%p = arith.mul{suffix} %a0, %a1 : {kind}", f"%s = arith.add{suffix} %out, %p : {kind}",
            f"linalg.yield %s : {kind}"]


def _einsum(w: Writer, node: Node) -> None:
    terms, kept = node.attributes["equation"].split("->")
    letters = [*kept, *sorted(set(terms) - set(kept) - {","})]
    maps = [", ".join(f"d{letters.index(letter)}" for letter in term) for term in (*terms.split(","), kept)]
    result = node.outputs[0]
    dtype = w.dtype(result)
    start = w.filled(dtype, w.shape(result), neutral("ReduceSum", dtype))
    suffix = "f" if is_float(dtype) else "i"
    body = multiply_and_add(dtype) if len(node.inputs) > 1 else [
        f"%s = arith.add{suffix} %out, %a0 : {element(dtype)}", f"linalg.yield %s : {element(dtype)}"
    ]
    iterators = ["parallel" if letter in kept else "reduction" for letter in letters]
    w.generic(result, maps, iterators, node.inputs, start, body, len(letters))


def _generic(w: Writer, node: Node) -> None:
    result = node.outputs[0]
    dtype = w.dtype(result)
    kind, suffix = element(dtype), "f" if is_float(dtype) else "i"
    maps = node.attributes["maps"]
    loops = len(node.attributes["extents"])
    kept = {axis[0][0] for axis in maps[-1]}
    largest = "arith.maximumf" if is_float(dtype) else "arith.maxsi"
    joins = {"mul": f"arith.mul{suffix}", "add": f"arith.add{suffix}", "max": largest, "first": ""}
    join = joins[node.attributes["join"]]
    body, value = [], "%a0"
    for k in range(1, len(node.inputs)):
        if join:
            body.append(f"%j{k} = {join} {value}, %a{k} : {kind}")
            value = f"%j{k}"
    if len(kept) < loops:
        fold = f"arith.add{suffix}" if node.attributes["fold"] == "add" else largest
        body.append(f"%f = {fold} {value}, %out : {kind}")
        value = "%f"
    least = "-1.0e+03" if is_float(dtype) else "-100"
    least = least if node.attributes["fold"] == "max" else neutral("ReduceSum", dtype)
    start = w.filled(dtype, w.shape(result), least)
    shown = [", ".join(" + ".join(f"d{loop} * {f}" if f > 1 else f"d{loop}" for loop, f in axis) for axis in one)
             for one in maps]
    iterators = ["parallel" if loop in kept else "reduction" for loop in range(loops)]
    w.generic(result, shown, iterators, node.inputs, start, [*body, f"linalg.yield {value} : {kind}"], loops)


def _softmax(w: Writer, node: Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    axis = node.attributes.get("axis", -1) % len(w.shape(source))
    empty = w.empty(w.dtype(result), w.shape(result))
    w.say(f"%{result} = linalg.softmax dimension({axis}) ins(%{source} : {w.type(source)}) "
          f"outs({empty} : {w.type(result)}) -> {w.type(result)}")


_WRITERS = {
    "Transpose": _transpose, "Expand": _expand, "Identity": _identity, "Squeeze": _unit_axes, "Unsqueeze": _unit_axes,
    "Reshape": _unit_axes, "Slice": _slice, "Pad": _pad, "Concat": _concat, "MatMul": _matmul, "Einsum": _einsum,
    "linalg.generic": _generic, "Softmax": _softmax, **dict.fromkeys(_SUMS, _reduce),
}  # fmt: skip
