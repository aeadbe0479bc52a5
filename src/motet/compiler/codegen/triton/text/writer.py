"""Writes one program: the text of a Triton function over a tile of points.

A tile has up to three axes. Every coordinate of a loop nest is an expression that varies along some of them, written so
that expressions along different axes broadcast against each other: `i[:, None]` along axis 0 of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.schema import STATUS_BYTES
from motet.compiler.codegen.gpu.accesses import gathered, is_wide
from motet.compiler.codegen.triton.text.scalars import (
    by_constant,
    carried_type,
    constant,
    expression,
    from_storage,
    number,
    to_storage,
)
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.epilogue import Epilogue
from motet.compiler.kernels.kernel import EXTENT, Kernel, Scalar, Size, Stage, Value, decisive
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess, memory_strides

Axes = frozenset[int]
NO_AXES: Axes = frozenset()


@dataclass(frozen=True)
class Coordinate:
    """The index of a loop: its text, and the axes of the tile along which it varies."""

    text: str
    axes: Axes = NO_AXES


STATUS = Value((STATUS_BYTES // 8,), "i64", "temporary", (0,))


def tell(status: str, check: int, index: str, extent: str, outside: str) -> list[str]:
    """Lines that report a failed check at the address `status`, with index and extent, where `outside` holds; of
    several points of a tile, any one is reported."""
    return [
        f"tl.store({status} + ({word} + 0 * ({outside})), ({value}) + 0 * ({outside}).to(tl.int64), mask={outside})"
        for word, value in enumerate((str(check), index, extent))
    ]


class Writer:
    """Collects the lines of one function over a tile of `shape`; its arguments are `buffers` (indices of values) and
    the kernel's symbols."""

    jit = "triton.jit"
    head = "import triton\nimport triton.language as tl\n"

    def __init__(self, kernel: Kernel, buffers: Sequence[int], shape: Sequence[int]) -> None:
        self.kernel = kernel
        self.buffers = tuple(buffers)
        self.shape = tuple(shape)
        self.masks: dict[int, str] = {}  # of axes whose last points may not exist
        self.lines: list[str] = []
        self.last: list[str] = []  # lines after all others
        self.helpers: dict[str, str] = {}
        self.level = 1
        self.remembered: dict[str, str] = {}  # names of loaded values, by the text that loads them
        self.along: dict[str, Axes] = {}  # by name: the axes of the tile along which a value varies, where known
        self.wide = is_wide(kernel)
        self.exact_quotients = False  # of f32; otherwise off by up to two units in the last place, but faster
        self._dense: list[tuple[dict[int, Extent], dict[int, Coordinate], Coordinate]] = []
        self._count = 0

    # -- text --------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.level + text)

    def define(self, prefix: str, text: str) -> str:
        """Define a new name for `text`."""
        name = f"{prefix}{self._count}"
        self._count += 1
        self.line(f"{name} = {text}")
        return name

    def module(self, symbol: str, about: str) -> str:
        """The whole source: the function `symbol` and the functions that it calls."""
        arguments = ", ".join([*(f"v{value}" for value in self.buffers), *map(symbol_name, self.kernel.symbols)])
        body = self.text()
        helpers = "".join(f"@{self.jit}\n{text}\n\n\n" for text in self.helpers.values())
        library = "from triton.language.extra import libdevice\n" if "libdevice." in body else ""
        return (
            f'"""{about}\n\n{self.described()}"""\n\n{self.head}{library}\n\n'
            f"{helpers}@{self.jit}\ndef {symbol}({arguments}):\n{body}\n"
        )

    def text(self) -> str:
        """The lines of the function."""
        return "\n".join([*self.lines, *self.last])

    def described(self) -> str:
        """Descriptions of the arguments, one line each."""
        values = [self.kernel.values[value] for value in self.buffers]
        lines = [
            f"v{number}: {value.role} {'x'.join(map(str, (*value.shape, value.dtype)))}"
            + ("" if value.order == tuple(range(value.rank)) else f", dimensions lie as {list(value.order)}")
            for number, value in zip(self.buffers, values, strict=True)
        ]
        return "\n".join([*lines, *(f"{symbol_name(symbol)}: extent {symbol}" for symbol in self.kernel.symbols), ""])

    # -- points ------------------------------------------------------------------------------------

    @property
    def tile(self) -> str:
        """The tile's shape as text."""
        return "(" + "".join(f"{size}, " for size in self.shape).rstrip() + ")"

    def extent(self, extent: Extent) -> str:
        parts = [symbol_name(symbol) for symbol in extent.symbols]
        if extent.factor != 1 or not parts:
            parts.insert(0, str(extent.factor))
        return " * ".join(parts)

    def program(self) -> str:
        """The index of this program in its grid."""
        return self.define("p", "tl.program_id(0)" + (".to(tl.int64)" if self.wide else ""))

    def range(self, axis: int) -> str:
        """0, 1, … along `axis` of the tile, in a shape that broadcasts to the tile."""
        if len(self.shape) == 1:
            return f"tl.arange(0, {self.shape[axis]})"
        inside = ", ".join(":" if a == axis else "None" for a in range(len(self.shape)))
        return f"tl.arange(0, {self.shape[axis]})[{inside}]"

    def decompose(self, linear: Coordinate, loops: Sequence[tuple[Extent, int]]) -> dict[int, Coordinate]:
        """The coordinates of nested `loops` (extent, dimension), outermost first, at point `linear`."""
        found: dict[int, Coordinate] = {}
        rest = linear.text
        running = ONE
        strides: dict[int, Extent] = {}
        for size, dim in reversed(loops):
            strides[dim] = running
            running = running * size
        self._dense.append((strides, found, linear))
        for position, (size, dim) in reversed(list(enumerate(loops))):
            if position == 0:
                found[dim] = Coordinate(rest, linear.axes)
                break
            extent = self.extent(size)
            found[dim] = Coordinate(self.define("i", f"{rest} % ({extent})"), linear.axes)
            rest = self.define("q", f"{rest} // ({extent})")
        return dict(found)  # a copy, as callers modify theirs

    def affine(self, entry: Affine, at: Mapping[int, Coordinate]) -> Coordinate:
        known = entry.constant
        parts: list[str] = []
        axes: set[int] = set()
        for dim, coefficient in entry.terms:
            if dim in at:
                if at[dim].text.isdigit():
                    known += coefficient * int(at[dim].text)
                else:
                    parts.append(at[dim].text if coefficient == 1 else f"{at[dim].text} * {coefficient}")
                axes |= at[dim].axes
        if known or not parts:
            parts.append(str(known))
        return Coordinate(" + ".join(parts), frozenset(axes))

    def offset(self, place: StridedAccess, at: Mapping[int, Coordinate]) -> Coordinate:
        """The element offset of `place` in its value's memory."""
        known = sum(part.factor for part in place.offset if not part.symbols)
        parts = [self.extent(part) for part in place.offset if part.symbols]
        axes: set[int] = set()
        done: set[int] = set()
        for strides, points, linear in self._dense:
            if len(strides) > 1 and all(
                at.get(dim) is points[dim] and dim < len(place.strides) and place.strides[dim] == stride
                for dim, stride in strides.items()
            ):
                parts.append(linear.text)
                axes |= linear.axes
                done |= strides.keys()
        for dim, stride in enumerate(place.strides):
            if dim in done or dim not in at or not stride.factor:
                continue
            if at[dim].text.isdigit() and not stride.symbols:
                known += int(at[dim].text) * stride.factor
            else:
                parts.append(at[dim].text if stride == ONE else f"{at[dim].text} * {self.extent(stride)}")
                axes |= at[dim].axes
        if known or not parts:
            parts.append(str(known))
        return Coordinate(" + ".join(f"({part})" if " + " in part else part for part in parts), frozenset(axes))

    def mask_of(self, axes: Iterable[int]) -> list[str]:
        return [self.masks[axis] for axis in sorted(axes) if axis in self.masks]

    # -- memory ------------------------------------------------------------------------------------

    def read(self, source: StridedAccess, at: Mapping[int, Coordinate], other: str = "", raw: bool = False) -> str:
        """Load the element at `source`, in its compute type or, if `raw`, in its storage type. Points out of bounds
        give `other`, or an undefined value."""
        offset = self.offset(source, at)
        conditions = self.mask_of(offset.axes)
        for bound in source.bounds:
            entry = self.affine(bound.entry, at)
            name = self.remembered.get(entry.text) or self.define("e", entry.text)
            self.remembered[entry.text] = name
            conditions += [f"({name} >= 0)", f"({name} < {self.extent(bound.extent)})"]
        arguments = ""
        if conditions:
            arguments = f", mask={' & '.join(conditions)}"
            filling = number(source.padding, source.dtype) if source.bounds else other
            arguments += f", other={filling}" if filling else ""
        text = f"tl.load(v{source.value} + ({offset.text}){arguments})"
        key = f"raw {text}" if raw else text
        if key in self.remembered:
            return self.remembered[key]
        name = self.define("x", text)
        carried = name if raw else from_storage(name, source.dtype)
        self.remembered[key] = name if carried == name else self.define("x", carried)
        varies = {axis for bound in source.bounds for axis in self.affine(bound.entry, at).axes}
        self.along[self.remembered[key]] = offset.axes | varies
        return self.remembered[key]

    def write(
        self, place: StridedAccess, at: Mapping[int, Coordinate], value: str, shape: Sequence[int] | None = None
    ) -> None:
        """Store `value`, in its compute type, with the shape of the tile or `shape`."""
        offset = self.offset(place, at)
        text = offset.text
        shape = self.shape if shape is None else shape
        axes = offset.axes
        if not {axis for axis, size in enumerate(shape) if size != 1} <= axes or not axes:
            text = f"{text} + tl.zeros({tuple(shape)}, tl.int32)"
            axes = frozenset(axis for axis, size in enumerate(shape) if size == self.shape[axis])
        mask = " & ".join(self.mask_of(axes))
        stored = to_storage(f"({value})", place.dtype)
        self.line(f"tl.store(v{place.value} + ({text}), {stored}{f', mask={mask}' if mask else ''})")

    # -- bodies ------------------------------------------------------------------------------------

    def body(
        self, body: Sequence[Scalar], operands: Sequence[str | None], dtypes: Sequence[str],
        at: Mapping[int, Coordinate], skip: frozenset[int] = frozenset(), tables: Mapping[int, int] | None = None,
        sizes: Sequence[Size] = (),
    ) -> list[str]:
        """The names of all body values: `operands` (inputs, accumulators; None for unused ones) of `dtypes`, then one
        per operation. The operations numbered in `skip` are omitted. `tables` maps operands that stand for whole
        tensors, from which bodies gather, to their values, in loops of `sizes`."""
        names = [operand or "" for operand in operands]
        kinds, exact = list(dtypes), decisive(body, len(operands))
        for position, scalar in enumerate(body):
            kinds.append(scalar.dtype)
            if position in skip:
                names.append("")
            elif scalar.op == "linalg.index":
                coordinate = at.get(int(scalar.value or 0), Coordinate("0"))
                names.append(self.define("x", self.index(coordinate)))
                self.along[names[-1]] = coordinate.axes
            elif scalar.op == EXTENT:
                names.append(self.define("x", f"tl.full((), 0, tl.int64) + {symbol_name(scalar.predicate)}"))
                self.along[names[-1]] = frozenset()
            elif scalar.op == "tensor.extract" and tables:
                ends = [_end(body, o - len(operands), sizes) for o in scalar.operands[1:]]
                indices = [names[o] for o in scalar.operands[1:]]
                names.append(self._gather(tables[scalar.operands[0]], indices, ends, scalar.check))
            else:
                own = [names[o] for o in scalar.operands]
                text = by_constant(scalar, body, len(operands), own)
                text = text or self._quotient(scalar, own, len(operands) + position in exact)
                text = text or expression(scalar, own, [kinds[o] for o in scalar.operands])
                names.append(self.define("x", text))
                self.along[names[-1]] = self._axes(own)
        return names

    def _axes(self, names: Sequence[str]) -> Axes:
        """The axes along which what is computed from these values may vary."""
        return frozenset(axis for name in names for axis in self.along.get(name, range(len(self.shape))))

    def _quotient(self, scalar: Scalar, x: Sequence[str], exact: bool) -> str | None:
        """A correctly rounded quotient of f32, if integers or truth values may depend on it or the form has all so."""
        if not (exact or self.exact_quotients) or scalar.op != "arith.divf" or scalar.dtype != "f32":
            return None
        return f"tl.div_rn({x[0]}, {x[1]})"

    def _gather(self, value: int, indices: Sequence[str], ends: Sequence[Size | None], check: int) -> str:
        """Load the element of a tensor at computed indices. Indices out of bounds are clamped, and reported as a
        failure of `check`, if there is one. An index known to be below its `end` is not clamped if that is in bounds,
        so that the compiler recognises contiguous accesses."""
        table = self.kernel.values[value]
        parts: list[str] = []
        exists = self.mask_of(self._axes(indices))
        for index, end, size, stride in zip(indices, ends, table.shape, memory_strides(table), strict=True):
            inside = index
            if end != size and not (isinstance(end, int) and isinstance(size, int) and end <= size):
                last = self.extent(Extent.of(size))
                inside = self.define("i", f"tl.maximum(tl.minimum({index}, {last} - 1), 0)")
                if check:
                    own = [*self.mask_of(self._axes([index])), f"({inside} != {index})"]
                    outside = self.define("o", f"({' & '.join(own)}) != 0")
                    self._tell(check, index, last, outside)
            inside = inside if self.wide else self.define("i", f"({inside}).to(tl.int32)")
            parts.append(f"{inside} * ({self.extent(stride)})")
        mask = " & ".join(exists)
        text = f"tl.load(v{value} + ({' + '.join(parts) or '0'}){f', mask={mask}' if mask else ''})"
        found = self.define("x", from_storage(text, table.dtype))
        self.along[found] = self._axes(indices)
        return found

    def _tell(self, check: int, index: str, extent: str, outside: str) -> None:
        """Report a failed check. A branch that no program usually takes leaves the layout of the tile to its other
        accesses, and is after them where all are known there."""
        lines = [
            f"if tl.max(tl.broadcast_to({outside}, {self.tile}).to(tl.int32)) != 0:",
            *(f"    {line}" for line in tell(f"v{self.buffers[-1]}", check, index, extent, outside)),
        ]
        if self.level == 1:
            self.last += [f"    {line}" for line in lines]
            return
        for line in lines:
            self.line(line)

    def index(self, coordinate: Coordinate) -> str:
        """A coordinate as bodies see it. Without axes it may be a Python number, which has no type."""
        return f"({coordinate.text}).to(tl.int64)" if coordinate.axes else f"tl.full((), {coordinate.text}, tl.int64)"

    def spread(self, text: str, dtype: str) -> str:
        """A value at every point of the tile, in exactly its compute type, as loops require of carried values."""
        return f"tl.broadcast_to({text}, {self.tile}).to({carried_type(dtype)})"

    def turned(self, text: str) -> str:
        """A tile of two axes with these exchanged."""
        return f"tl.trans({text})"

    def finish(
        self, epilogue: Epilogue, value: str, at: Mapping[int, Coordinate], stored: Mapping[int, StridedAccess],
        beside: Mapping[int, str] | None = None,
    ) -> dict[int, str]:
        """Run the stages of `epilogue` on `value`, in its compute type, and store the values in `stored`. `beside` are
        other values already computed. Returns all computed values."""
        made = {**(beside or {}), epilogue.value: value}
        if epilogue.value in stored:
            self.write(stored[epilogue.value], at, value)
        for step in epilogue.steps:
            operands: list[str | None] = []
            dtypes: list[str] = []
            inputs, tables = len(step.stage.inputs), gathered(step.stage)
            for position, (read, known) in enumerate(zip(step.reads, step.known, strict=True)):
                is_input = position < inputs
                access = step.stage.inputs[position] if is_input else step.stage.outputs[position - inputs]
                dtype = self.kernel.values[access.value].dtype
                if position in tables:
                    operands.append(None)
                elif known is not None:
                    operands.append(made[known])
                elif isinstance(read, StridedAccess):
                    operands.append(self.read(read, at))
                else:
                    operands.append(None if read is None else constant(read, dtype))
                dtypes.append(dtype)
            points = {own: at[dim] for own, dim in step.dims.items() if dim in at}
            names = self.body(step.stage.body, operands, dtypes, points, tables=tables, sizes=step.stage.sizes)
            for (output, _), k in zip(step.writes, step.stage.yields, strict=True):
                made[output] = names[k]
                if output in stored:
                    self.write(stored[output], at, names[k])
        return made


def _end(body: Sequence[Scalar], position: int, sizes: Sequence[Size]) -> Size | None:
    """The exclusive upper bound of operation `position` of a body if it is the index of one of the loops of `sizes`."""
    if position < 0 or body[position].op != "linalg.index" or not sizes:
        return None
    return sizes[int(body[position].value or 0)]


def symbol_name(symbol: str) -> str:
    """The name of the argument for a symbol."""
    return f"s_{symbol}"


def output_dtypes(kernel: Kernel, stage: Stage) -> list[str]:
    return [kernel.values[access.value].dtype for access in stage.outputs]
