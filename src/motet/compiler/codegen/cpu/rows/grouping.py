"""Groups stages that run together row by row: their passes, and where parts of a row are kept.

A row is processed in *passes*: one loop runs all stages that do not depend on each other's reductions. Values that
later passes of a row read again are kept in scratch memory, or in the memory of a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from motet.compiler.codegen.cpu.emit.addressing import StridedNest, nest_of
from motet.compiler.codegen.cpu.gemm.microkernel import LINE
from motet.compiler.codegen.cpu.rows.columns import column_dimension, lanes_across, suits_across
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Stage, decisive, item_bytes
from motet.compiler.kernels.linked_dimensions import count_linked, linked_dimensions, row_loops, with_equal_extents
from motet.compiler.kernels.reduction import Reduction, match_reduction
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, physical_order
from motet.compiler.targets.cpu import CpuTarget

_SCRATCH = 256 << 10  # of a row, the most that a thread keeps
_NEAR = 64 << 10  # bytes up to which a value is kept in scratch memory even if a result's memory could hold it


@dataclass(frozen=True)
class RowGroup:
    """Stages that run row by row. All nests have the same outer dimensions; those in `wide` also have the row's
    dimensions, `inner` of them, last: a row is a number of segments, along whose elements vectors run. `passes` are
    indices of nests. `places` maps private temporaries to their memory."""

    nests: tuple[StridedNest, ...]
    wide: tuple[bool, ...]
    passes: tuple[tuple[int, ...], ...]
    private: frozenset[int]
    inner: int = 1
    places: Mapping[int, StridedAccess] = field(default_factory=dict[int, StridedAccess])
    kept: frozenset[int] = frozenset()  # private temporaries that need memory
    offsets: Mapping[int, int] = field(default_factory=dict[int, int])
    scratch: int = 0
    across: bool = False  # whether vectors run across neighbouring rows

    @property
    def reduces(self) -> bool:
        return any("reduction" in nest.kinds for nest in self.nests)

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The extents of the wide nests, rows first."""
        return self.nests[self.wide.index(True)].sizes


def last_end(kernel: Kernel, first: int, nests: Sequence[StridedNest]) -> int:
    """The last end that a group of stages from `first` on can have; `nests` are those of all stages."""
    end = first + count_linked(kernel.stages[first:], _link)
    return next((s for s in range(first, end) if any(operand.bounds for operand in nests[s].inputs)), end)


def group(
    kernel: Kernel, stages: range, target: CpuTarget, known: Sequence[StridedNest] | None = None
) -> RowGroup | None:
    """The stages as one group, or None; `known` are the nests of all stages of the kernel, for a caller that tries
    many groups. Raises `Unsupported` for a stage that no class has code for."""
    nests = [nest_of(kernel, kernel.stages[s]) if known is None else known[s] for s in stages]
    chosen = [kernel.stages[s] for s in stages]
    classes = linked_dimensions(chosen, lambda stage, dimension: True, _link)
    if classes is None or any(operand.bounds for nest in nests for operand in nest.inputs):
        return None
    arranged = _arrange(kernel, chosen, nests, classes)
    if arranged is None:
        return None
    nests, wide, inner = arranged
    last = [len(nest.sizes) - 1 if is_wide else None for nest, is_wide in zip(nests, wide, strict=True)]
    nests = [nest if along is None else multiplied(nest, along) for nest, along in zip(nests, last, strict=True)]
    across = suits_across(nests, wide, inner, target)
    if not (across or _suited(nests, wide, inner, target)) or not _consistent(nests, wide, inner):
        return None
    passes = _passes(nests, wide)
    return _placed(kernel, stages, RowGroup(tuple(nests), tuple(wide), passes, frozenset(), inner, across=across))


def _link(here: Affine, _reader: Stage, there: Affine, _producer: Stage) -> Sequence[tuple[int, int]] | None:
    if here.is_constant and there.is_constant and here.constant == there.constant:
        return ()
    if here.single is None or there.single is None:
        if here.constant != there.constant or len(here.terms) < 2:
            return None
        ours, theirs = ({c: d for d, c in entry.terms} for entry in (here, there))  # tiles: dimensions by their steps
        return [(d, theirs[c]) for c, d in ours.items()] if ours.keys() == theirs.keys() else None
    return ((here.single, there.single),)


def _arrange(
    kernel: Kernel, stages: Sequence[Stage], nests: list[StridedNest], classes: list[dict[int, int]]
) -> tuple[list[StridedNest], list[bool], int] | None:
    """Nests over the shared rows, followed by the row's own dimensions if they have them, and the number of these."""
    classes = with_equal_extents(classes, lambda s, d: nests[s].sizes[d])
    widest = max(range(len(stages)), key=lambda s: len(stages[s].sizes))
    if any(widest not in members for members in classes):
        return None
    order = physical_order(kernel, stages[widest])
    loops = row_loops(stages, sorted(classes, key=lambda members: order.index(members[widest])))
    if loops is None:
        return None
    pinned = {
        (s, nests[s].dims[int(op.value or 0)])
        for s, stage in enumerate(stages)
        for op in stage.body
        if op.op == "linalg.index"
    }
    outer, inner = (
        [
            members
            for members in part
            if nests[widest].sizes[members[widest]] != ONE or set(members.items()) & pinned
        ]
        for part in (loops.outer, loops.inner)
    )
    if not inner:
        if len(stages) == 1 or not outer:
            return None
        inner = [outer.pop()]
    ordered = [*outer, *inner]
    arranged = [nest.arrange([m[s] for m in ordered if s in m]) for s, nest in enumerate(nests)]
    present = [[s in m for m in ordered] for s in range(len(nests))]
    return _collapse(arranged, present, len(outer))


def _collapse(
    nests: list[StridedNest], present: list[list[bool]], outer: int
) -> tuple[list[StridedNest], list[bool], int] | None:
    """Merge neighbouring dimensions where all nests allow it; None if a nest then has some of a row's dimensions, but
    not all, or reduces only some of them."""
    count = len(present[0])
    for c in range(count - 2, -1, -1):
        if c + 1 == outer:
            continue
        if any(here[c] != here[c + 1] for here in present):
            continue
        at = [sum(here[:c]) for here in present]
        if all(
            not here[c] or nest.mergeable(d, d + 1) for nest, here, d in zip(nests, present, at, strict=True)
        ):
            nests = [
                nest.merge(d, d + 1) if here[c] else nest
                for nest, here, d in zip(nests, present, at, strict=True)
            ]
            present = [[*here[:c], *here[c + 1 :]] for here in present]
            outer -= c + 1 < outer
    if any(len(set(here[outer:])) != 1 for here in present):
        return None
    wide = [here[-1] for here in present]
    if any(len(set(nest.kinds[outer:])) > 1 for nest in nests):
        return None
    return nests, wide, len(present[0]) - outer


def _suited(nests: Sequence[StridedNest], wide: Sequence[bool], inner: int, target: CpuTarget) -> bool:
    """Whether vectors along the row, or along its segments, are worthwhile."""
    if inner > 1 and not any("reduction" in nest.kinds for nest in nests):
        return False
    if len(nests) == 1 and (_runs_along_results(nests[0], target) or _runs_across(nests[0], target)):
        return False
    for nest, is_wide in zip(nests, wide, strict=True):
        if not is_wide:
            continue
        length = nest.sizes[-1].known
        if length is not None and length < min(8, target.lanes(32)):
            return False
        if nest.kinds[-1] == "parallel":
            if any(output.strides[-1] != ONE for output in nest.outputs):
                return False
        elif not any(operand.strides[-1] == ONE for operand in nest.inputs):
            return False
    return True


def _runs_along_results(nest: StridedNest, target: CpuTarget) -> bool:
    """Whether vectors of results can be computed from vectors and single elements: then reductions need no sums of
    lanes."""
    return any(
        nest.kinds[d] == "parallel"
        and guess(nest.sizes[d]) >= target.lanes(32)
        and all(operand.strides[d] == ONE for operand in nest.outputs)
        and all(operand.strides[d] in (ZERO, ONE) for operand in nest.inputs)
        for d in range(len(nest.sizes))
    ) and "reduction" in nest.kinds


def _runs_across(nest: StridedNest, target: CpuTarget) -> bool:
    """Whether vectors should run across rows, which are read column by column."""
    along = next((d for d in nest.dims_of("parallel") if nest.outputs[0].strides[d] == ONE), None)
    return column_dimension(nest, along, lanes_across(nest, target)) is not None


def _consistent(nests: Sequence[StridedNest], wide: Sequence[bool], inner: int) -> bool:
    """Whether every stage reads earlier results at the point at which they were written."""
    written: dict[int, tuple[StridedAccess, bool]] = {}
    for nest, is_wide in zip(nests, wide, strict=True):
        for operand in nest.inputs:
            if operand.value not in written:
                continue
            producer, was_wide = written[operand.value]
            here, there = operand.strides, producer.strides
            here += () if is_wide else (ZERO,) * inner
            there += () if was_wide else (ZERO,) * inner
            if here != there or operand.offset != producer.offset:
                return False
        for output in nest.outputs:
            written[output.value] = (output, is_wide)
    return True


def _passes(nests: Sequence[StridedNest], wide: Sequence[bool]) -> tuple[tuple[int, ...], ...]:
    passes: list[list[int]] = []
    for s, nest in enumerate(nests):
        extends_pass = bool(passes) and wide[s] and wide[passes[-1][-1]]
        if extends_pass:
            reduced = {
                output.value
                for t in passes[-1]
                if nests[t].kinds[-1] == "reduction"
                for output in nests[t].outputs
            }
            same = {is_sequential(nests[t]) for t in passes[-1]}
            extends_pass = same == {is_sequential(nest)} and not any(
                operand.value in reduced for operand in nest.inputs
            )
        if extends_pass:
            passes[-1].append(s)
        else:
            passes.append([s])
    return tuple(map(tuple, passes))


def combiners_of(nest: StridedNest) -> list[Reduction | None]:
    return [match_reduction(nest.stage, k) for k in range(len(nest.outputs))]


def is_sequential(nest: StridedNest) -> bool:
    """Whether the points of a row must be processed in order."""
    return nest.kinds[-1:] == ("reduction",) and any(found is None for found in combiners_of(nest))


def _placed(kernel: Kernel, stages: range, found: RowGroup) -> RowGroup:
    """`found`, with memory assigned to every temporary that is private to the group."""
    pass_of = {s: number for number, each in enumerate(found.passes) for s in each}
    stored = any(kernel.values[output.value].role == "temporary" for nest in found.nests for output in nest.outputs)
    elsewhere = {
        access.value
        for s, stage in enumerate(kernel.stages if stored else ())
        if s not in stages
        for access in (*stage.inputs, *stage.outputs, *(i for i in stage.inits if isinstance(i, Access)))
    }
    private: set[int] = set()
    kept: set[int] = set()
    places: dict[int, StridedAccess] = {}
    offsets: dict[int, int] = {}
    taken: set[int] = set()
    scratch = 0
    for s, nest in enumerate(found.nests):
        for output in nest.outputs:
            value = output.value
            if kernel.values[value].role != "temporary" or value in elsewhere:
                continue
            readers = [
                t
                for t, other in enumerate(found.nests)
                if any(operand.value == value for operand in other.inputs)
            ]
            in_row = found.wide[s] and nest.kinds[-1] == "parallel"
            if not in_row or all(pass_of[t] == pass_of[s] for t in readers):
                private.add(value)
                continue
            length = _row_length(nest, found.inner).known
            near = length is not None and scratch + length * item_bytes(output.dtype) <= _NEAR
            host = None if near else _host(kernel, found, pass_of, s, output, readers, taken)
            if host is not None:
                taken.add(host.value)
                places[value] = host
            elif length is not None and scratch + length * item_bytes(output.dtype) <= _SCRATCH:
                offsets[value] = scratch
                scratch += -(-length * item_bytes(output.dtype) // LINE) * LINE + LINE  # see `_shift`
                places[value] = replace(output, offset=(), strides=_row_strides(nest, found.inner))
            else:
                continue
            private.add(value)
            kept.add(value)
    return replace(
        found,
        private=frozenset(private),
        places=places,
        kept=frozenset(kept),
        offsets=offsets,
        scratch=scratch,
    )


def _row_length(nest: StridedNest, inner: int) -> Extent:
    """The number of elements of a row, all segments together."""
    result = ONE
    for size in nest.sizes[len(nest.sizes) - inner :]:
        result = result * size
    return result


def _row_strides(nest: StridedNest, inner: int) -> tuple[Extent, ...]:
    """The strides of a single row that is stored densely."""
    strides = [ZERO] * len(nest.sizes)
    running = ONE
    for d in reversed(range(len(nest.sizes) - inner, len(nest.sizes))):
        strides[d] = running
        running = running * nest.sizes[d]
    return tuple(strides)


def _host(
    kernel: Kernel,
    found: RowGroup,
    pass_of: Mapping[int, int],
    producer: int,
    output: StridedAccess,
    readers: Sequence[int],
    taken: set[int],
) -> StridedAccess | None:
    """A result whose memory can hold the temporary: the result is written only after the last read of the temporary.
    A result may share memory with an argument, so that no argument of the same layout may be read meanwhile."""
    for w, nest in enumerate(found.nests):
        for result in nest.outputs:
            value = kernel.values[result.value]
            if value.role != "result" or result.value in taken or result.dtype != output.dtype:
                continue
            if result.strides != output.strides or result.offset != output.offset:
                continue
            if any(pass_of[t] > pass_of[w] for t in readers) or pass_of[w] <= pass_of[producer]:
                continue
            later = [n for t, n in enumerate(found.nests) if pass_of[producer] < pass_of[t]]
            reread = {operand.value for n in later for operand in n.inputs}
            if not any(
                kernel.values[v].role in ("argument", "result") and kernel.values[v].shape == value.shape
                for v in reread
            ):
                return result
    return None


def multiplied(nest: StridedNest, along: int) -> StridedNest:
    """`nest` with f32 and f64 divisions of the elements along dimension `along` by one value replaced by
    multiplications, but for those that are rounded to integers or compared, where the last bit decides.

    Both factors are scaled by 2^±64 first if the reciprocal could overflow or be subnormal.
    """
    stage = nest.stage
    inputs = len(stage.inputs) + len(stage.outputs)
    exact = decisive(stage.body, inputs)
    uniform = {k for k, operand in enumerate(nest.inputs) if operand.strides[along] == ZERO}
    constants = set[int]()
    moved = {i: i for i in range(inputs)}
    body: list[Scalar] = []

    def add(
        op: str, operands: tuple[int, ...], dtype: str, value: float | None = None, predicate: str = ""
    ) -> int:
        body.append(Scalar(op, operands, dtype, value, predicate))
        return inputs + len(body) - 1

    for position, scalar in enumerate(stage.body, start=inputs):
        if scalar.op == "arith.constant":
            constants.add(position)
        if scalar.op == "arith.constant" or (scalar.operands and all(i in uniform for i in scalar.operands)):
            uniform.add(position)
        operands = tuple(moved[i] for i in scalar.operands)
        kept = position in uniform or position in exact
        divides = scalar.op == "arith.divf" and scalar.dtype in ("f32", "f64") and not kept
        if not divides or scalar.operands[1] not in uniform:
            body.append(replace(scalar, operands=operands))
            moved[position] = inputs + len(body) - 1
            continue
        dtype, divisor = scalar.dtype, operands[1]
        size = add("math.absf", (divisor,), dtype)
        one, small, large = (add("arith.constant", (), dtype, 2.0**n) for n in (0, -64, 64))
        up = add("arith.cmpf", (size, small), "i1", predicate="olt")
        down = add("arith.cmpf", (size, large), "i1", predicate="ogt")
        scale = add("arith.select", (down, small, one), dtype)
        scale = add("arith.select", (up, large, scale), dtype)
        reciprocal = add("arith.divf", (one, add("arith.mulf", (divisor, scale), dtype)), dtype)
        scaled = add("arith.mulf", (operands[0], scale), dtype)
        moved[position] = add("arith.mulf", (scaled, reciprocal), dtype)
    yields = tuple(moved[i] for i in stage.yields)
    return replace(nest, stage=replace(stage, body=tuple(body), yields=yields))
