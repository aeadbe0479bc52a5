"""Recurrent layers as Triton programs: a loop over the iterations, with states in registers.

Axis 1 of every tile are the columns of a value or, if no value has any, recurrences; axis 0 is what a reduction sums
over. The sums of one product that are read as several parts, such as the gates of an LSTM, are reduced together. For
NVIDIA's GPUs, a first form in Gluon gives a thread one column, and elements of a reduction that follow each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu, source_of
from motet.compiler.codegen.gpu.ext.recurrences import Part, RecurrencePlan, all_columns, part_read
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.codegen.triton.rows.reductions import combine, masked, narrowed
from motet.compiler.codegen.triton.rows.rows import across
from motet.compiler.codegen.triton.text.gluon import GluonWriter
from motet.compiler.codegen.triton.text.program import Form, TritonCode, TritonProgram
from motet.compiler.codegen.triton.text.scalars import constant, pointer_type
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.cost import flops
from motet.compiler.kernels.kernel import Access, Stage, item_bytes, known_product
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import Extent, StridedAccess, memory_strides

_TURN = "t"  # the symbol of the iteration's number
_LANES = frozenset({1})


def emit(planned: RecurrencePlan, name: str, arguments: Sequence[str], results: Sequence[str]) -> TritonCode:
    """The code of a loop's function with arguments and results of these dtypes. Raises `UnsupportedOnGpu` for accesses
    that registers do not allow."""
    found, kernel = planned.found, planned.found.kernel
    writers = [Writer(kernel, (), (1, 1))]
    if planned.across:
        writers.insert(0, GluonWriter(kernel, (), (1, 1)))
    own = {argument: f"v{value}" for value, argument in found.arguments.items()}
    names = [own.get(number, f"u{number}") for number in range(len(arguments))]
    names += [f"v{len(kernel.values) + number}" for number in range(len(results))]
    forms: list[Form] = []
    for w in writers:
        _RecurrenceText(planned, w).run()
        if isinstance(w, GluonWriter):
            warps = [planned.warps // planned.across, planned.across]
            w.lines.insert(0, f"    L: gl.constexpr = gl.BlockedLayout([4, 1], [1, 32], {warps}, [1, 0])")
        source = w.module(name, _about(planned)).replace(f"def {name}():", f"def {name}({', '.join(names)}):")
        forms.append(Form(source, planned.programs, planned.warps))
    buffers = tuple(map(pointer_type, (*arguments, *results)))
    program = TritonProgram(name, buffers, (), tuple(forms), about="recurrence")
    read = sum(item_bytes(kernel.values[v].dtype) * (known_product(kernel.values[v].shape) or 0)
               for v in found.arguments)
    return TritonCode(
        "recurrence", "", (Phase(name, planned.programs),), flops=flops(kernel) * found.length, bytes=read,
        programs=(program,),
    )


def _about(planned: RecurrencePlan) -> str:
    found = planned.found
    return f"{found.length} iterations of {found.count} recurrences"


@dataclass
class _RecurrenceText:
    """Writes the program by `w`. Lines before the loop are collected in `before`; `made` are the names of stages'
    results in the current section, by stage and columns."""

    planned: RecurrencePlan
    w: Writer
    before: list[str] = field(default_factory=list[str])
    made: dict[tuple[int, Part], list[str]] = field(default_factory=dict[tuple[int, "Part"], list[str]])
    lanes: dict[tuple[str, Part], Coordinate] = field(default_factory=dict[tuple[str, "Part"], Coordinate])
    states: dict[int, str] = field(default_factory=dict[int, str])  # by the value read
    inside: bool = False

    def __post_init__(self) -> None:
        self.found = self.planned.found
        self.kernel = self.found.kernel
        self.producers = self.found.producers
        self.points = self.planned.points > 1 or not any(
            self.found.column_of(value) is not None for value in self.producers
        )

    def result(self, number: int) -> int:
        """The number, as a value, of a result of the loop's function."""
        return len(self.kernel.values) + number

    # -- the whole ---------------------------------------------------------------------------------

    def run(self) -> None:
        w, found = self.w, self.found
        self._rows()
        carried: list[str] = []
        for number, state in enumerate(found.states):
            name = f"h{number}"
            w.line(f"{name} = {self._carried(self._whole(state.first), state.made)}")
            carried.append(name)
            if state.read >= 0:
                self.states[state.read] = name
        self.made.clear()
        self.before, w.lines = w.lines, []
        self.inside, w.level = True, 2
        for part in found.written:
            self._store(part.value, self._whole(part.value), StridedAccess(
                self.result(part.result), self.kernel.values[part.value].dtype,
                (Extent(part.begin), Extent(part.step, (_TURN,))), tuple(map(Extent, part.strides))))
        names = [self._carried(self._whole(state.made), state.made) for state in found.states]
        names = [w.define("n", text) for text in names]
        for name, new in zip(carried, names, strict=True):
            w.line(f"{name} = {new}")
        w.level = 1
        w.lines = [*self.before, f"    for s_{_TURN} in range(0, {found.length}):", *w.lines]
        for state, name in zip(found.states, carried, strict=True):
            if state.result >= 0:
                value = self.kernel.values[state.made]
                self._store(state.made, name, StridedAccess(
                    self.result(state.result), value.dtype, (), memory_strides(value)))

    def _rows(self) -> None:
        """Define the coordinates of rows."""
        w, count = self.w, self.found.count
        linear = Coordinate(w.program())
        if self.points:
            points = self.planned.points
            linear = Coordinate(w.define("r", f"{linear.text} * {points} + tl.arange(0, {points})[None, :]"), _LANES)
            self.mask = w.define("m", f"{linear.text} < {count}") if count % points else ""
        loops = [(Extent(self.found.extent(row)), row) for row in range(len(self.found.rows))]
        self.rows = w.decompose(linear, loops) if loops else {}

    def _carried(self, text: str, value: int) -> str:
        self._enter(self._all(value), 1)
        return self.w.spread(text, self._dtype(value))

    def _dtype(self, value: int) -> str:
        return self.kernel.values[value].dtype

    def _all(self, value: int) -> Part:
        return all_columns(self.found, value)

    def _store(self, value: int, text: str, place: StridedAccess) -> None:
        part = self._all(value)
        self._enter(part, 1)
        at = self._at_value(value, part)
        self.w.write(place, at, text)

    def _at_value(self, value: int, part: Part) -> dict[int, Coordinate]:
        at: dict[int, Coordinate] = {}
        for d, size in enumerate(self.kernel.values[value].shape):
            row = self.found.row_of(value, d)
            if row is not None:
                at[d] = self.rows[row]
            elif size != 1:
                at[d] = self._lane("c", part)
        return at

    def _enter(self, part: Part, depth: int) -> None:
        """Set the tile for `part`, and for the `depth` elements of a reduction."""
        w = self.w
        w.masks = {}
        lanes = self.planned.points if self.points else power_of_two(part[1])
        w.shape = (power_of_two(depth), lanes)
        if self.points:
            w.masks |= {1: self.mask} if self.mask else {}
        elif lanes != part[1]:
            w.masks[1] = self._name(f"mc{part[1]}", f"{self._lane('c', (0, part[1])).text} < {part[1]}")
        if depth != power_of_two(depth):
            w.masks[0] = self._name(f"mk{depth}", f"{self._lane('k', (0, depth)).text} < {depth}")

    def _lane(self, kind: str, part: Part) -> Coordinate:
        """The columns of a part along axis 1 (`c`), or the elements of a reduction along axis 0 (`k`)."""
        offset, extent = part
        if (kind, part) not in self.lanes:
            shape, self.w.shape = self.w.shape, (power_of_two(extent),) * 2
            text = self.w.range("kc".index(kind))
            self.w.shape = shape
            name = self._name(f"{kind}{extent}_{offset}", text + (f" + {offset}" if offset else ""))
            self.lanes[kind, part] = Coordinate(name, _LANES if kind == "c" else frozenset({0}))
        return self.lanes[kind, part]

    def _name(self, name: str, text: str) -> str:
        """Define a name before the loop, once."""
        line = f"    {name} = {text}"
        lines = self.before if self.inside else self.w.lines
        if line not in lines:
            lines.append(line)
        return name

    @contextlib.contextmanager
    def _ahead(self, moves: bool) -> Generator[None]:
        """Write lines before the loop, unless they differ between iterations."""
        if moves or not self.inside:
            yield
            return
        w = self.w
        lines, w.lines, w.level = w.lines, self.before, 1
        yield
        self.before, w.lines, w.level = w.lines, lines, 2

    # -- values ------------------------------------------------------------------------------------

    def _whole(self, value: int) -> str:
        return self._value(value, self._all(value))

    def _value(self, value: int, part: Part) -> str:
        """The name of some columns of a value that is a state or made by a stage."""
        if value in self.states:
            if part != self._all(value):
                raise UnsupportedOnGpu("parts of a state in a loop")
            return self.states[value]
        s = self.producers[value]
        if (s, part) not in self.made:
            if self.kernel.stages[s].reductions:
                self._reduce(s, part)
            else:
                self._compute(s, part)
        outputs = [access.value for access in self.kernel.stages[s].outputs]
        return self.made[s, part][outputs.index(value)]

    def _points(self, stage: Stage, part: Part) -> dict[int, Coordinate]:
        """The coordinates of a stage's loops for some columns of its result."""
        at: dict[int, Coordinate] = {}
        output = stage.outputs[0]
        for d, entry in enumerate(output.map):
            loop = entry.single
            if loop is None or stage.sizes[loop] == 1:
                continue
            row = self.found.row_of(output.value, d)
            at[loop] = self._lane("c", part) if row is None else self.rows[row]
        for loop in stage.reductions:
            if stage.sizes[loop] != 1:
                at[loop] = self._lane("k", (0, int(stage.sizes[loop])))
        return at

    def _depth(self, stage: Stage) -> int:
        sizes = [int(stage.sizes[loop]) for loop in stage.reductions if stage.sizes[loop] != 1]
        if len(sizes) > 1:
            raise UnsupportedOnGpu("a reduction along several dimensions in a loop")
        return sizes[0] if sizes else 1

    def _operand(self, s: int, k: int, access: Access, part: Part) -> str:
        """Input `k` of stage `s`; of an initial value, `k` is -1."""
        stage = self.kernel.stages[s]
        if access.value in self.producers or access.value in self.states:
            own, along = part_read(self.found, stage, access, part)
            name = self._value(access.value, own)
            self._enter(part, self._depth(stage))
            return self.w.turned(name) if along else name
        source = source_of(self.kernel, access, stage.sizes)
        moved = self.found.moving.get((s, k), 0)
        if moved and not self.inside:
            raise UnsupportedOnGpu("a state that begins with an element of a sequence")
        if moved:
            source = replace(source, offset=(*source.offset, Extent(moved, (_TURN,))))
        again = bool(stage.reductions) and k >= 0 and (s, k, part) not in self.planned.kept
        at = self._points(stage, part)
        self._enter(part, self._depth(stage))
        with self._ahead(bool(moved) or again):
            return self.w.read(source, at)

    def _dtypes(self, stage: Stage) -> list[str]:
        return [self._dtype(access.value) for access in (*stage.inputs, *stage.outputs)]

    def _compute(self, s: int, part: Part) -> None:
        """Compute an element-wise stage."""
        stage = self.kernel.stages[s]
        operands: list[str | None] = [self._operand(s, k, access, part) for k, access in enumerate(stage.inputs)]
        for access, init in zip(stage.outputs, stage.inits, strict=True):
            if isinstance(init, Access):
                operands.append(self._operand(s, -1, init, part))
            else:
                operands.append(None if init is None else constant(init, self._dtype(access.value)))
        self._enter(part, 1)
        names = self.w.body(stage.body, operands, self._dtypes(stage), self._points(stage, part))
        self.made[s, part] = [names[k] for k in stage.yields]

    def _reduce(self, s: int, part: Part) -> None:
        """Compute all wanted parts of a reduction's results together."""
        stage = self.kernel.stages[s]
        found = match_reductions(stage)
        if found is None:
            raise UnsupportedOnGpu("a reduction whose order matters in a loop")
        parts = [each for each in self.planned.parts.get(s, [part]) if each[1] == part[1]] if self.inside else [part]
        if part not in parts:
            parts = [part]
        terms = [self._terms(s, each, found) for each in parts]
        for k, each in enumerate(found):
            totals = self._total(each, [term[k] for term in terms])
            for own, total in zip(parts, totals, strict=True):
                self.made.setdefault((s, own), []).append(self._begun(s, k, each, own, total))

    def _terms(self, s: int, part: Part, found: Sequence[Reduction]) -> list[str]:
        stage, w = self.kernel.stages[s], self.w
        first = len(stage.inputs) + len(stage.outputs)
        operands = [self._operand(s, k, access, part) for k, access in enumerate(stage.inputs)]
        self._enter(part, self._depth(stage))
        skip = frozenset(each.last - first for each in found)
        names = w.body(stage.body, [*operands, *(None for _ in stage.outputs)], self._dtypes(stage),
                       self._points(stage, part), skip)
        terms: list[str] = []
        for each in found:
            term = w.spread(names[each.term], each.accumulator)
            mask = " & ".join(w.mask_of((0,)))
            terms.append(w.define("t", masked(each, mask, term) if mask else term))
        return terms

    def _total(self, each: Reduction, terms: Sequence[str]) -> list[str]:
        """The reductions of `terms` along axis 0."""
        w, count = self.w, len(terms)
        if count == 1:
            return [across(w, each, terms[0], 0)]
        name = f"combine{count}_{each.op.partition('.')[2]}_{each.accumulator}"
        x, y = ([f"{letter}{number}" for number in range(count)] for letter in "xy")
        both = ", ".join(combine(each, a, b) for a, b in zip(x, y, strict=True))
        w.helpers[name] = f"def {name}({', '.join((*x, *y))}):\n    return {both}"
        totals = w.define("t", f"tl.reduce(({', '.join(terms)}), 0, {name}, keep_dims=True)")
        return [w.define("t", f"{totals}[{number}]") for number in range(count)]

    def _begun(self, s: int, k: int, each: Reduction, part: Part, total: str) -> str:
        """A total, combined with the initial value of its result."""
        stage, w = self.kernel.stages[s], self.w
        init, dtype = stage.inits[k], self._dtype(stage.outputs[k].value)
        if isinstance(init, Access):
            self._enter(part, 1)
            total = w.define("t", combine(each, self._operand(s, -1, init, part), total))
        elif init is not None and init != each.identity:
            total = w.define("t", combine(each, constant(init, dtype), total))
        return w.define("t", narrowed(each, total))
