"""The meaning of a user's microkernel, as a loop nest, and whether a part of a stage is equal to it.

    C[i, j] += A[i, k] * B[k, j]                       a product; A, B and C in f32, i of 4 and j of 16 elements
    C[i] = max(C[i], A[i, k])                          maxima of rows
    C[w, f] += f32(A[w + s, c]) * f32(B[s, c, f])      a window, of bf16 numbers

A microkernel replaces the loops inside a loop of a nest: their dimensions are matched to those of the meaning. Operands
are compared by the dimensions that they move along, bodies as expressions, up to the order of commutative operands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Literal

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import FLOATS, ITEM_BITS, Access, Scalar, Stage
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.strides import Extent

DTYPES = tuple(dtype for dtype in ITEM_BITS if not dtype.startswith(("ui", "complex", "f8")) and dtype != "index")

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_UNARY = ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "ceil", "floor", "round", "roundeven")
_COMMUTATIVE = {
    "arith.addf", "arith.addi", "arith.mulf", "arith.muli", "arith.maximumf", "arith.minimumf", "arith.maxsi",
    "arith.minsi",
}


@dataclass(frozen=True)
class MicroMeaning:
    """The loop nest of a microkernel: `dims` in the order of its interface, `operands` with the result last, and the
    stage, in which value `n` is operand `n`. Sizes that are not fixed are the names of their dimensions."""

    dims: tuple[str, ...]
    operands: tuple[str, ...]
    dtypes: tuple[str, ...]
    stage: Stage

    @property
    def accumulates(self) -> bool:
        """Whether the result is added to what is there."""
        return _reads_result(self.stage)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The access of each operand."""
        return (*self.stage.inputs, *self.stage.outputs)


@dataclass(frozen=True)
class MicroMatch:
    """How a part of a stage is a microkernel: the dimension of the stage for each of the meaning's, and the input for
    each of its inputs."""

    dims: tuple[int, ...]
    inputs: tuple[int, ...]


@lru_cache(maxsize=256)
def read_meaning(text: str, dtypes: tuple[tuple[str, str], ...], sizes: tuple[tuple[str, int], ...]) -> MicroMeaning:
    """The meaning that `text` describes. Raises ValueError, which says what is wrong and what is expected."""
    return _MeaningReader(text, dict(dtypes), dict(sizes)).meaning()


def meaning_of(kernel: Microkernel) -> MicroMeaning:
    return read_meaning(kernel.meaning, tuple(kernel.dtypes.items()), tuple(kernel.sizes.items()))


# -- reading ---------------------------------------------------------------------------------------


class _MeaningReader:
    """Reads one statement. Body values are inputs, then the result, then operations, as in a stage."""

    def __init__(self, text: str, dtypes: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        self.text = text
        self.dtypes = dtypes
        self.sizes = sizes
        self.dims: list[str] = []
        self.reads: list[tuple[str, tuple[Affine, ...]]] = []
        self.result: tuple[str, tuple[Affine, ...]] = ("", ())
        self.body: list[Scalar] = []

    def meaning(self) -> MicroMeaning:
        target, value, operator = self._statement()
        self.result = self._access(target)
        written = [entry.single for entry in self.result[1]]
        if None in written or len(set(written)) < len(written):
            raise self._wrong(f"{ast.unparse(target)} is no element of a result", "different dimensions, as C[i, j]")
        parallel = len(self.dims)
        name, _ = self.result
        reads = [node for node in ast.walk(value) if isinstance(node, ast.Subscript)]
        for node in sorted(reads, key=lambda node: node.col_offset):
            found = self._access(node)
            if found != self.result and found not in self.reads:
                self.reads.append(found)
            if found[0] == name and found != self.result:
                raise self._wrong(f"{name} is read at another element than it is written", "its own element")
        self._check_names(name)
        last = self._value(value)
        if operator is not None:
            last = self._binary(operator, len(self.reads), last)
        if self._dtype(last) != self.dtypes[name]:
            raise self._wrong(f"the value is of {self._dtype(last)}, and {name} of {self.dtypes[name]}",
                              f"a conversion, as {self.dtypes[name]}(…)")
        if last < len(self.reads) + 1:
            raise self._wrong("it computes nothing", "an operation on its operands")
        kinds: tuple[Literal["parallel", "reduction"], ...] = tuple(
            "parallel" if n < parallel else "reduction" for n in range(len(self.dims))
        )
        accesses = [Access(n, maps) for n, (_, maps) in enumerate((*self.reads, self.result))]
        stage = Stage(
            tuple(self.sizes.get(dim, dim) for dim in self.dims), kinds, tuple(accesses[:-1]), tuple(accesses[-1:]),
            (None,), tuple(self.body), (last,),
        )
        if parallel < len(self.dims) and not _reads_result(stage):
            raise self._wrong(f"{', '.join(self.dims[parallel:])} are not in {name}, which does not add them up",
                              f"{name}[…] += …, or {name}[…] = max({name}[…], …)")
        operands = (*(each for each, _ in self.reads), name)
        return MicroMeaning(tuple(self.dims), operands, tuple(self.dtypes[each] for each in operands), stage)

    def _statement(self) -> tuple[ast.expr, ast.expr, type[ast.operator] | None]:
        try:
            statements = ast.parse(self.text.strip(), mode="exec").body
        except (SyntaxError, ValueError):
            statements = []
        if len(statements) == 1 and isinstance(statements[0], ast.AugAssign):
            return statements[0].target, statements[0].value, type(statements[0].op)
        if len(statements) == 1 and isinstance(statements[0], ast.Assign) and len(statements[0].targets) == 1:
            return statements[0].targets[0], statements[0].value, None
        raise self._wrong("it is no statement", "one, as C[i, j] += A[i, k] * B[k, j]")

    def _check_names(self, result: str) -> None:
        used = [result, *(name for name, _ in self.reads)]
        if twice := [name for n, name in enumerate(used) if name in used[:n]]:
            raise self._wrong(f"{twice[0]} is read at several elements", "a name for each access")
        for name in used:
            if self.dtypes.get(name) not in DTYPES:
                given = self.dtypes.get(name, "none")
                raise self._wrong(f"operand {name} has the type {given}", f"one of {', '.join(DTYPES)}")
        for name in self.dtypes.keys() - set(used):
            raise self._wrong(f"there is no operand {name}", f"types of {', '.join(used)}")
        for name, size in self.sizes.items():
            if name not in self.dims:
                raise self._wrong(f"there is no dimension {name}", f"sizes of {', '.join(self.dims)}")
            if size < 2:
                raise self._wrong(f"{name} has {size} elements", "at least 2; leave out dimensions of one element")

    def _access(self, node: ast.expr) -> tuple[str, tuple[Affine, ...]]:
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise self._wrong(f"{ast.unparse(node)} is no element", "one, as A[i, k]")
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return node.value.id, tuple(self._affine(entry) for entry in entries)

    def _affine(self, node: ast.expr) -> Affine:
        if isinstance(node, ast.Name):
            if node.id not in self.dims:
                self.dims.append(node.id)
            return Affine.dim(self.dims.index(node.id))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._affine(node.left) + self._affine(node.right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factor, other = (node.left, node.right) if isinstance(node.left, ast.Constant) else (node.right, node.left)
            if isinstance(factor, ast.Constant) and type(factor.value) is int and factor.value > 0:
                return self._affine(other) * factor.value
        raise self._wrong(f"{ast.unparse(node)} is no index", "a dimension, or a sum of them, as 2 * w + s")

    def _value(self, node: ast.expr) -> int:
        """The number of the body value that `node` computes."""
        if isinstance(node, ast.Subscript):
            found = self._access(node)
            return len(self.reads) if found == self.result else self.reads.index(found)
        if isinstance(node, ast.BinOp):
            if isinstance(node.left, ast.Constant) or isinstance(node.right, ast.Constant):
                return self._with_constant(node)
            return self._binary(type(node.op), self._value(node.left), self._value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._negated(self._value(node.operand))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, node.args)
        expected = "+, -, *, /, max, min, a function, or a type as f32(…)"
        raise self._wrong(f"{ast.unparse(node)} is no operation", expected)

    def _with_constant(self, node: ast.BinOp) -> int:
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            raise self._wrong(f"{ast.unparse(node)} is a constant", "operations on operands")
        if isinstance(node.left, ast.Constant):
            other = self._value(node.right)
            return self._binary(type(node.op), self._constant(node.left, other), other)
        other = self._value(node.left)
        assert isinstance(node.right, ast.Constant)
        return self._binary(type(node.op), other, self._constant(node.right, other))

    def _constant(self, node: ast.Constant, like: int) -> int:
        dtype, value = self._dtype(like), node.value
        if type(value) not in (int, float) or (dtype not in FLOATS and type(value) is not int):
            raise self._wrong(f"{ast.unparse(node)} is no number of {dtype}", "a number")
        number = float(value) if dtype in FLOATS else int(value)  # pyright: ignore[reportArgumentType]
        return self._add(Scalar("arith.constant", (), dtype, number))

    def _call(self, name: str, arguments: Sequence[ast.expr]) -> int:
        values = [self._value(each) for each in arguments]
        if name in ("max", "min") and len(values) == 2:
            dtype = self._same(name, *values)
            return self._add(Scalar(f"arith.{name}imumf" if dtype in FLOATS else f"arith.{name}si", (*values,), dtype))
        if len(values) != 1:
            raise self._wrong(f"{name} has {len(values)} arguments", "max and min of two, other functions of one")
        dtype = self._dtype(values[0])
        if name in DTYPES:
            return self._converted(values[0], dtype, name)
        if name == "abs":
            return self._add(Scalar("math.absf" if dtype in FLOATS else "math.absi", (*values,), dtype))
        if name in _UNARY and dtype in FLOATS:
            return self._add(Scalar(f"math.{name}", (*values,), dtype))
        raise self._wrong(f"there is no function {name} of {dtype}", f"max, min, abs, {', '.join(_UNARY)}, or a type")

    def _converted(self, value: int, before: str, after: str) -> int:
        floats, wider = (before in FLOATS, after in FLOATS), ITEM_BITS[after] > ITEM_BITS[before]
        if before == after:
            return value
        if "i1" in (before, after) or (floats == (True, True) and ITEM_BITS[after] == ITEM_BITS[before]):
            raise self._wrong(f"there is no conversion from {before} to {after}", "another type between them")
        op = {(True, True): "extf" if wider else "truncf", (False, False): "extsi" if wider else "trunci",
              (True, False): "fptosi", (False, True): "sitofp"}[floats]
        return self._add(Scalar(f"arith.{op}", (value,), after))

    def _negated(self, value: int) -> int:
        dtype = self._dtype(value)
        if dtype not in FLOATS:
            raise self._wrong("an integer is negated", "0 - x")
        return self._add(Scalar("arith.negf", (value,), dtype))

    def _binary(self, operator: type[ast.operator], left: int, right: int) -> int:
        if operator not in _BINARY:
            raise self._wrong("there is no such operator", "one of +, -, *, /")
        name = _BINARY[operator]
        dtype = self._same(name, left, right)
        op = f"{name}f" if dtype in FLOATS else "divsi" if name == "div" else f"{name}i"
        return self._add(Scalar(f"arith.{op}", (left, right), dtype))

    def _same(self, name: str, left: int, right: int) -> str:
        one, other = self._dtype(left), self._dtype(right)
        if one != other:
            raise self._wrong(f"{name} of {one} and {other}", "equal types, by conversions such as f32(…)")
        return one

    def _dtype(self, value: int) -> str:
        count = len(self.reads) + 1
        if value >= count:
            return self.body[value - count].dtype
        return self.dtypes[self.result[0] if value == count - 1 else self.reads[value][0]]

    def _add(self, scalar: Scalar) -> int:
        self.body.append(scalar)
        return len(self.reads) + len(self.body)

    def _wrong(self, why: str, expected: str) -> ValueError:
        return ValueError(f"meaning {self.text.strip()!r}: {why}; expected {expected}")


# -- matching --------------------------------------------------------------------------------------


def match_part(
    meaning: MicroMeaning, stage: Stage, names: Sequence[str], covers: Mapping[int, int | None]
) -> MicroMatch | str:
    """How the part of `stage` that has `covers[d]` elements of each dimension `d` (None: not known) is `meaning`, or
    why it is not. `names` are those of the stage's dimensions."""
    micro = meaning.stage
    if len(stage.inputs) != len(micro.inputs) or len(stage.outputs) != 1:
        return (f"the stage has {len(stage.inputs)} operands and {len(stage.outputs)} results, the microkernel "
                f"{len(micro.inputs)} and 1")
    if any(access.padding is not None for access in stage.outputs) or any(s.op == "linalg.index" for s in stage.body):
        return "its body depends on indices"
    wanted = _expression(micro, range(len(micro.inputs)))
    orders = [
        order for order in permutations(range(len(stage.inputs))) if _expression(stage, _inverse(order)) == wanted
    ]
    if not orders:
        return f"its body is not that of {' '.join(_shown(meaning).split())}"
    moving = [d for d, cover in covers.items() if cover != 1]
    fewest: list[str] | None = None
    for order in orders:
        for dims in _assignments(meaning, stage, moving, order):
            wrong = _other_sizes(meaning, dims, names, covers)
            if not wrong:
                return MicroMatch(dims, order)
            fewest = wrong if fewest is None or len(wrong) < len(fewest) else fewest
    if fewest:
        return fewest[0]
    listed = ", ".join(names[d] for d in moving) or "none"
    return f"its operands do not move along {listed} as those of the microkernel along {', '.join(meaning.dims)}"


def _assignments(
    meaning: MicroMeaning, stage: Stage, moving: Sequence[int], order: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The dimensions of `stage` for those of the meaning, such that operands move along the same ones."""
    micro = meaning.stage
    pairs = [(micro.inputs[n], stage.inputs[order[n]]) for n in range(len(order))]
    pairs.append((micro.outputs[0], stage.outputs[0]))
    for dims in permutations(moving, len(meaning.dims)) if len(moving) == len(meaning.dims) else ():
        kinds = all(micro.iterators[m] == stage.iterators[d] for m, d in enumerate(dims))
        if kinds and all(
            {dims[m] for m in mine.dims} == {d for d in theirs.dims if d in moving} for mine, theirs in pairs
        ):
            yield dims


def _other_sizes(
    meaning: MicroMeaning, dims: Sequence[int], names: Sequence[str], covers: Mapping[int, int | None]
) -> list[str]:
    """The dimensions of the part that have other sizes than the microkernel's."""
    found: list[str] = []
    for name, size, d in zip(meaning.dims, meaning.stage.sizes, dims, strict=True):
        if isinstance(size, int) and covers[d] != size:
            there = "a number of elements that is not known" if covers[d] is None else f"{covers[d]} elements"
            found.append(f"{names[d]} has {there} there, {name} of the microkernel {size}")
    return found


def _expression(stage: Stage, labels: Sequence[int]) -> object:
    """What `stage` yields, as nested tuples; input `n` has the label `labels[n]`."""
    count = len(stage.inputs) + len(stage.outputs)

    def of(value: int) -> object:
        if value < count:
            return ("input", labels[value]) if value < len(stage.inputs) else ("result",)
        scalar = stage.body[value - count]
        parts = [of(each) for each in scalar.operands]
        if scalar.op in _COMMUTATIVE:
            parts.sort(key=repr)
        number = float(scalar.value) if scalar.op == "arith.constant" and scalar.value is not None else scalar.value
        return (scalar.op, scalar.dtype, number, scalar.predicate, *parts)

    return of(stage.yields[0])


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(n) for n in range(len(order))]


def _reads_result(stage: Stage) -> bool:
    return any(len(stage.inputs) in scalar.operands for scalar in stage.body)


def _shown(meaning: MicroMeaning) -> str:
    return f"{meaning.operands[-1]}[…] of {', '.join(meaning.operands[:-1])}"


# -- strides ---------------------------------------------------------------------------------------


def axis_strides(access: Access, match: MicroMatch, strides: Sequence[Extent]) -> list[Extent] | None:
    """The stride of each axis of a microkernel's operand, from those of the stage's dimensions. None if these are not
    those of any axes."""
    found: list[Extent] = []
    for entry in access.map:
        own: set[Extent] = set()
        for dim, coefficient in entry.terms:
            stride = strides[match.dims[dim]]
            if stride.factor % coefficient:
                return None
            own.add(Extent(stride.factor // coefficient, stride.symbols))
        if len(own) != 1:
            return None
        found.append(own.pop())
    return found
