"""Brings the nodes of a model into order, and refuses models that break ONNX's rules for names, types and attributes,
with the node and the value. Later steps rely on these rules.

Source: ONNX Intermediate Representation Specification, sections "Graphs" and "Names Within a Graph".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from motet.compiler.frontends.onnx.attribute_values import drop_empty, wrong_value
from motet.compiler.frontends.onnx.bodies import all_nodes, graphs_of
from motet.compiler.frontends.onnx.writing import ModelFacts, element_types
from motet.errors import CompileError

if TYPE_CHECKING:
    import onnx

    from motet.compiler.frontends.onnx.model import OnnxModel

_SHOWN = 5  # nodes in an error
_DEEPEST_CALLS = 100  # functions that call each other, in a row; onnx's inliner has this limit
_MOST_INLINED = 100_000  # nodes of a model once calls of functions are replaced by their nodes
_AXES = ("axis", "axes", "batch_axis", "time_axis")
_FLAGS = frozenset({
    "ceil_mode", "count_include_pad", "exclusive", "keepdims", "largest", "reverse", "select_last_index", "sorted",
})  # fmt: skip
_BETWEEN = ("Flatten", "OneHot")  # whose axis may be one past those of the operand
_LONGER = ("Unsqueeze", "ConcatFromSequence", "SequenceInsert", "SplitToSequence")  # whose axes are those of the result
_OWN = "motet."  # begins attributes that readers of other formats write (`openvino/resizing.py`)
# What rules raise of operands and attributes that ONNX's definition of an operator excludes.
UNREADABLE = (ArithmeticError, IndexError, KeyError, TypeError, ValueError)
_COMPLEX = {14: "complex64", 15: "complex128"}  # at which the wheel dies where ONNX has no such operands
_MANY = 1 << 30  # of operands and results: any number


def refuse_recursion(model: OnnxModel) -> None:
    """Refuses functions of the model that call themselves, directly or through others."""
    functions = {(function.domain, function.name): function for function in model.proto.functions}
    done: set[tuple[str, str]] = set()
    for first in functions:
        path = [first]
        waiting = [_calls(functions[first], functions)]
        while path:
            called = next(waiting[-1], None)
            if called is None:
                done.add(path.pop())
                waiting.pop()
            elif called in path:
                raise model.error(f"function {called[1]!r} of domain {called[0]!r} calls itself; expected no recursion")
            elif called not in done:
                path.append(called)
                waiting.append(_calls(functions[called], functions))


def refuse_growth(model: OnnxModel) -> None:
    """Refuses models whose calls of functions stand for too many nodes, or are too deep. Functions must not call
    themselves."""
    functions = {(function.domain, function.name): function for function in model.proto.functions}
    counts: dict[tuple[str, str], int] = {}
    depths: dict[tuple[str, str], int] = {}

    def count(nodes: Iterable[onnx.NodeProto]) -> int:
        # Not more than needed: numbers may have as many digits as there are functions.
        return min(sum(counts.get((node.domain, node.op_type), 1) for node in nodes), _MOST_INLINED + 1)

    for first in functions:
        waiting = [first]
        while waiting:
            function = functions[waiting[-1]]
            missing = [called for called in _calls(function, functions) if called not in counts]
            waiting += missing
            if not missing:
                counts[waiting[-1]] = count(all_nodes(function))
                depths[waiting.pop()] = 1 + max((depths[called] for called in _calls(function, functions)), default=0)
    for (_, name), depth in depths.items():
        if depth > _DEEPEST_CALLS:
            limit = f"expected at most {_DEEPEST_CALLS}"
            raise model.error(f"function {name!r}: {depth} functions call each other; {limit}")
    nodes = list(all_nodes(model.proto.graph))
    if functions and count(nodes) > _MOST_INLINED:
        largest = max(nodes, key=lambda node: counts.get((node.domain, node.op_type), 1))
        raise model.error(
            f"{label(largest)}: with the nodes that its functions stand for, the model has more than {_MOST_INLINED:,} "
            f"nodes; expected at most {_MOST_INLINED:,}"
        )


def _calls(
    function: onnx.FunctionProto, functions: Mapping[tuple[str, str], onnx.FunctionProto]
) -> Iterator[tuple[str, str]]:
    found = dict.fromkeys((node.domain, node.op_type) for node in all_nodes(function))
    return (key for key in found if key in functions)


def check_graph(model: OnnxModel) -> None:
    """Sorts the nodes, and checks them. Raises CompileError."""
    names = [value.name for value in model.proto.graph.input]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise model.error(f"input {twice!r}: two inputs have this name; expected each name once")
    types = {name: kind for name, kind in element_types(model).items() if name in model.constants or name in set(names)}
    _Rules(model).graph(model.proto.graph, types)


def check_axes(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Refuses attributes that are axes beyond the rank of the operand, or that are neither 0 nor 1 where ONNX has only
    these."""
    if node.domain not in ("", "ai.onnx"):
        return
    rank = facts.rank(node.input[0]) if node.input and node.input[0] else None
    for item in node.attribute:
        values = list(item.ints) or [item.i]
        if item.name in _FLAGS and item.i not in (0, 1):
            raise facts.model.error(f"{label(node)}: operator {node.op_type}: {item.name} is {item.i}; expected 0 or 1")
        if item.name in _AXES and rank is not None:
            most = max(1, rank + (node.op_type in _BETWEEN))
            if node.op_type not in _LONGER and any(not -most <= value < most for value in values):
                raise facts.model.error(
                    f"{label(node)}: operator {node.op_type}: {item.name} is {values}; expected "
                    f"axes from {-most} to {most - 1}, for an operand of {rank} dimensions"
                )


def label(node: onnx.NodeProto) -> str:
    """How errors name a node."""
    return f"node {node.name!r}" if node.name else f"node that computes {list(node.output)}"


class _Rules:
    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._opsets = model.opsets

    def graph(self, graph: onnx.GraphProto, outside: Mapping[str, int]) -> None:
        """`outside` has the element types of the values that are known where the graph begins, 0 where they are not."""
        types = dict(outside)
        types |= {value.name: value.type.tensor_type.elem_type for value in graph.input if value.name not in types}
        types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        types |= dict.fromkeys((sparse.values.name for sparse in graph.sparse_initializer), 0)
        self._sort(graph, types)
        for node in graph.node:
            self._check_attributes(node)
            types |= self._types(node, types)
            for body in graphs_of(node):
                self.graph(body, types)
        for value in graph.output:
            if value.name not in types:
                raise self._model.error(f"output {value.name!r}: no node makes it{_made(graph.node)}")
            declared, made = value.type.tensor_type.elem_type, types[value.name]
            if declared and made and declared != made:
                raise self._model.error(
                    f"output {value.name!r} is declared as {_element(declared)}, but is of type {_element(made)}"
                )

    # -- names and order

    def _sort(self, graph: onnx.GraphProto, known: Iterable[str]) -> None:
        makers: dict[str, int] = {}
        for index, node in enumerate(graph.node):
            for name in filter(None, node.output):
                if name in makers:
                    raise self._model.error(
                        f"{label(node)}: it makes {name!r}, which {label(graph.node[makers[name]])} makes as well; "
                        "expected a name for each value"
                    )
                makers[name] = index
        there = set(known)
        needed: list[list[int]] = []
        for node in graph.node:
            before = [name for name in _free(node) if name not in there]
            for name in before:
                if name not in makers:
                    raise self._model.error(
                        f"{label(node)}: operator {node.op_type} reads {name!r}, which no node makes, and which is no "
                        "input or initializer"
                    )
            needed.append([makers[name] for name in before])
        if any(other >= index for index, others in enumerate(needed) for other in others):
            order = self._order(graph, needed)
            nodes = [graph.node[index] for index in order]
            copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
            del graph.node[:]
            graph.node.extend(copies)

    def _order(self, graph: onnx.GraphProto, needed: Sequence[Sequence[int]]) -> list[int]:
        """The nodes after those that they need, otherwise as they are."""
        order: list[int] = []
        done: set[int] = set()
        for first in range(len(needed)):
            waiting = [first]
            on_the_way: set[int] = set()
            while waiting:
                index = waiting[-1]
                if index in done:
                    waiting.pop()
                    continue
                open_ones = [other for other in needed[index] if other not in done]
                if not open_ones:
                    done.add(index)
                    order.append(index)
                    waiting.pop()
                elif index in on_the_way:
                    circle = ", ".join(repr(graph.node[each].name) for each in sorted(on_the_way)[:_SHOWN])
                    raise self._model.error(
                        f"{label(graph.node[index])}: it waits for its own result; in the circle: {circle}"
                    )
                else:
                    on_the_way.add(index)
                    waiting += open_ones
        return order

    # -- attributes and types

    def _check_attributes(self, node: onnx.NodeProto) -> None:
        if node.domain in ("", "ai.onnx"):
            drop_empty(node)
            if (what := wrong_value(node)) is not None:
                raise self._wrong(node, what)

    def _types(self, node: onnx.NodeProto, types: Mapping[str, int]) -> dict[str, int]:
        """The element types of a node's results, 0 where they are not known. Refuses operands of two types where
        the operator has one."""
        import onnx

        unknown = dict.fromkeys(node.output, 0)
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = self._opsets.get(domain)
        if version is None or not onnx.defs.has(node.op_type, version, domain):
            return unknown
        schema = onnx.defs.get_schema(node.op_type, version, domain)
        self._check_form(node, schema, version)
        for formal, name in _paired(schema.inputs, node.input):
            if (kind := types.get(name)) in _COMPLEX and f"tensor({(of := _COMPLEX[kind])})" not in formal.types:
                raise self._wrong(node, f"{name!r} is {of}; expected one of {', '.join(elements(formal))}")
        for first, other in mixed(node, schema, types):
            raise of_two_types(self._model, node, types, first, other)
        bound = {formal.type_str: types[name] for formal, name in _typed(node, schema, types)}
        found = {
            name: bound.get(formal.type_str, 0) or _only_element(formal)
            for formal, name in _paired(schema.outputs, node.output)
        }
        if node.op_type == "Cast":
            found |= dict.fromkeys(node.output, next((item.i for item in node.attribute if item.name == "to"), 0))
        return unknown | found

    def _check_form(self, node: onnx.NodeProto, schema: onnx.defs.OpSchema, version: int) -> None:
        """Checks the numbers of operands and results, and the names, presence and types of attributes."""
        import onnx

        single = schema.FormalParameterOption.Single
        for what, given, formals, limits in (
            ("operands", node.input, schema.inputs, (schema.min_input, schema.max_input)),
            ("results", node.output, schema.outputs, (schema.min_output, schema.max_output)),
        ):
            if not limits[0] <= len(given) <= limits[1]:
                most = " or more" if limits[1] > _MANY else f" to {limits[1]}" if limits[1] > limits[0] else ""
                raise self._wrong(node, f"its number of {what} is {len(given)}; expected {limits[0]}{most}")
            for number, (formal, name) in enumerate(zip(formals, given, strict=False)):
                if what == "operands" and formal.option == single and not name:
                    raise self._wrong(node, f"operand {number} ({formal.name}) is left out; expected one")
        given = {item.name: item for item in node.attribute}
        for item in node.attribute:
            if item.name not in schema.attributes and not item.name.startswith(_OWN):
                expected = ", ".join(sorted(schema.attributes)) or "none"
                what = f"attribute {item.name!r} is unknown in operator set {version}; expected {expected}"
                raise self._wrong(node, what)
            if not item.type and self._model.proto.ir_version > 1:
                raise self._wrong(node, f"attribute {item.name!r} has no type")
        for name, formal in schema.attributes.items():
            item, expected = given.get(name), str(formal.type).rpartition(".")[2]
            if item is None:
                if formal.required:
                    raise self._wrong(node, f"attribute {name} is missing; expected one of type {expected.lower()}")
            elif not item.ref_attr_name and expected != (found := _type_name(onnx, item)):
                raise self._wrong(node, f"attribute {name} is of type {found.lower()}; expected {expected.lower()}")

    def _wrong(self, node: onnx.NodeProto, what: str) -> CompileError:
        return self._model.error(f"{label(node)}: operator {node.op_type}: {what}")


def mixed(
    node: onnx.NodeProto, schema: onnx.defs.OpSchema, types: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Each operand of another type than the first one of the same type parameter, after that one. `types` has the
    element types that are known."""
    bound: dict[str, str] = {}
    for formal, name in _typed(node, schema, types):
        first = bound.setdefault(formal.type_str, name)
        if types[first] != types[name]:
            yield first, name


def of_two_types(
    model: OnnxModel, node: onnx.NodeProto, types: Mapping[str, int], first: str, other: str
) -> CompileError:
    """The error about two operands that `mixed` yields."""
    one, two = (_element(types[name]) for name in (first, other))
    return model.error(
        f"{label(node)}: operator {node.op_type} takes operands of one type: {first!r} is {one}, {other!r} is {two}"
    )


def _typed(
    node: onnx.NodeProto, schema: onnx.defs.OpSchema, types: Mapping[str, int]
) -> Iterator[tuple[onnx.defs.OpSchema.FormalParameter, str]]:
    """The operands of known types, without those that may be of any types."""
    variadic = schema.FormalParameterOption.Variadic
    for formal, name in _paired(schema.inputs, node.input):
        if types.get(name) and (formal.option != variadic or formal.is_homogeneous):
            yield formal, name


def _type_name(onnx_: Any, item: onnx.AttributeProto) -> str:
    kinds = onnx_.AttributeProto.AttributeType
    return kinds.Name(item.type) if item.type in kinds.values() else str(item.type)


def _element(kind: int) -> str:
    import onnx

    kinds = onnx.TensorProto.DataType
    return kinds.Name(kind).lower() if kind in kinds.values() else str(kind)


def _only_element(formal: onnx.defs.OpSchema.FormalParameter) -> int:
    """The element type of a parameter that has one alone; 0 for others."""
    import onnx

    known = elements(formal)
    return onnx.TensorProto.DataType.Value(known[0].upper()) if len(formal.types) == len(known) == 1 else 0


def elements(formal: onnx.defs.OpSchema.FormalParameter) -> list[str]:
    """The element types that a parameter of a schema may have."""
    return sorted(kind.removeprefix("tensor(").removesuffix(")") for kind in formal.types if kind.startswith("tensor("))


def _paired(
    formals: Sequence[onnx.defs.OpSchema.FormalParameter], names: Sequence[str]
) -> Iterator[tuple[onnx.defs.OpSchema.FormalParameter, str]]:
    """The parameters of a schema with the names given for them; the last may be given several times."""
    for index, name in enumerate(names):
        if formals and name:
            yield formals[min(index, len(formals) - 1)], name


def _free(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, with those of outer values that its bodies read."""
    yield from filter(None, node.input)
    for body in graphs_of(node):
        own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        own |= {sparse.values.name for sparse in body.sparse_initializer}
        own |= {name for inner in body.node for name in inner.output}
        for inner in body.node:
            yield from (name for name in _free(inner) if name not in own)
        yield from (value.name for value in body.output if value.name not in own)


def _made(nodes: Sequence[onnx.NodeProto]) -> str:
    names = [name for node in nodes for name in node.output][-_SHOWN:]
    return f"; made are {', '.join(map(repr, names))}" if names else ""
