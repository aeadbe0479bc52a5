"""Row kernels: stages over the same rows, with reductions along what lies side by side.

Softmax, normalisations, norms, sums and extremes of rows, and chains of element-wise stages. A task is a
block of rows. A row is gone over in *passes*: one loop runs all stages that do not wait for each other's
reductions, so that softmax is three passes (maximum; exponential and sum; scaling). Reductions keep several
accumulators. What a row's later passes read again stays in the thread's scratch, or where the result will be.
Large results are written past the caches, and while a pass computes, the next row comes into a near cache:
rows that lie in memory then take the time of the slower of the two, not of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llvmlite import ir

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.addressing import (
    STREAM,
    Frame,
    Lanes,
    Nest,
    Operand,
    index_values,
    load_values,
    nest_of,
    physical_order,
    result_bytes,
    store_values,
)
from motet.compiler.codegen.cpu.body import (
    Combiner,
    Unsupported,
    combiner,
    constant,
    evaluate,
    is_float,
    widen,
)
from motet.compiler.codegen.cpu.builder import I32, I64, Index
from motet.compiler.codegen.cpu.division import Division, nanoseconds
from motet.compiler.codegen.cpu.extents import ONE, ZERO
from motet.compiler.codegen.cpu.vector_math import Lanes as Arithmetic
from motet.compiler.codegen.cpu.vector_math import Value
from motet.compiler.codegen.kernel import (
    ITEM_BITS,
    Access,
    Kernel,
    KernelCode,
    Phase,
    Scalar,
    Stage,
    item_bytes,
)
from motet.compiler.targets.cpu import CpuTarget

_SCRATCH = 256 << 10  # bytes of a row that a thread keeps at most
_NEAR = 64 << 10  # bytes up to which it keeps them even where a result could hold them
_AHEAD = 256 << 10  # bytes of a row that is asked for ahead at most
_FAR = 1 << 20  # bytes from which on a value is not taken to lie in a cache already
_FIRST = 16 << 10  # bytes of a row up to which it is asked for into the first-level cache
_BUSY = 8  # operations for each element from which on a pass takes longer than memory
_LONG = 64  # vectors of a row that is worth beginning with a whole one
_LINE = 64


@dataclass(frozen=True)
class Group:
    """Stages that run row by row. Every nest has the same outer dimensions; those in `wide` have one
    more, the row's, last. `passes` are indices of nests. `places` says where private temporaries are kept."""

    nests: tuple[Nest, ...]
    wide: tuple[bool, ...]
    passes: tuple[tuple[int, ...], ...]
    private: frozenset[int]
    places: Mapping[int, Operand] = field(default_factory=dict[int, Operand])
    kept: frozenset[int] = frozenset()  # private temporaries that need their place
    offsets: Mapping[int, int] = field(default_factory=dict[int, int])
    scratch: int = 0

    @property
    def reduces(self) -> bool:
        return any("reduction" in nest.kinds for nest in self.nests)


def emit(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for a kernel that is one group with a reduction; None for any other."""
    try:
        found = group(kernel, range(len(kernel.stages)), target)
        if found is None or not found.reduces:
            return None
        if any(v.role == "temporary" and i not in found.private for i, v in enumerate(kernel.values)):
            return None
        module = ir.Module(kernel.name)
        tasks = emit_group(module, kernel.name, kernel, target, found, {})
    except Unsupported:
        return None
    return KernelCode("rows", str(module), (Phase(kernel.name, tasks),), found.scratch)


# -- grouping ------------------------------------------------------------------------------------------


def group(kernel: Kernel, stages: range, target: CpuTarget) -> Group | None:
    """The stages as one group, or None. Raises `Unsupported` for what no generator has code for."""
    nests = [nest_of(kernel, kernel.stages[s]) for s in stages]
    chosen = [kernel.stages[s] for s in stages]
    classes = _classes(kernel, chosen)
    if classes is None or any(operand.bounds for nest in nests for operand in nest.inputs):
        return None
    arranged = _arrange(kernel, chosen, nests, classes)
    if arranged is None:
        return None
    nests, wide = arranged
    nests = [_multiplied(nest) if is_wide else nest for nest, is_wide in zip(nests, wide, strict=True)]
    if not _suited(nests, wide, target) or not _consistent(nests, wide):
        return None
    passes = _passes(nests, wide)
    return _placed(kernel, stages, Group(tuple(nests), tuple(wide), passes, frozenset()))


def _classes(kernel: Kernel, stages: Sequence[Stage]) -> list[dict[int, int]] | None:
    """Dimensions that run together, as {stage: dimension}, linked by what stages read of earlier ones."""
    parent = {(s, d): (s, d) for s, stage in enumerate(stages) for d in range(len(stage.sizes))}

    def root(key: tuple[int, int]) -> tuple[int, int]:
        while parent[key] != key:
            key = parent[key]
        return key

    written: dict[int, tuple[int, Access]] = {}
    for s, stage in enumerate(stages):
        if any(isinstance(init, Access) and init.value in written for init in stage.inits):
            return None
        for access in stage.inputs:
            if access.value not in written:
                continue
            producer, output = written[access.value]
            for here, there in zip(access.map, output.map, strict=True):
                if here.is_constant and there.is_constant and here.constant == there.constant:
                    continue
                if here.single is None or there.single is None:
                    return None
                parent[root((s, here.single))] = root((producer, there.single))
        for access in stage.outputs:
            if access.value in written:
                return None
            written[access.value] = (s, access)
    found: dict[tuple[int, int], dict[int, int]] = {}
    for s, d in parent:
        members = found.setdefault(root((s, d)), {})
        if s in members:
            return None
        members[s] = d
    return list(found.values())


def _arrange(
    kernel: Kernel, stages: Sequence[Stage], nests: list[Nest], classes: list[dict[int, int]]
) -> tuple[list[Nest], list[bool]] | None:
    """Nests over the shared rows, then the row's own dimension where they have it."""
    classes = _aligned(nests, classes)
    widest = max(range(len(stages)), key=lambda s: len(stages[s].sizes))
    if any(widest not in members for members in classes):
        return None
    if any(len({nests[s].sizes[d] for s, d in members.items()}) != 1 for members in classes):
        return None
    order = physical_order(kernel, stages[widest])
    classes = sorted(classes, key=lambda members: order.index(members[widest]))

    def is_outer(members: dict[int, int]) -> bool:
        return len(members) == len(stages) and all(
            nests[s].kinds[d] == "parallel" for s, d in members.items()
        )

    outer = [members for members in classes if is_outer(members)]
    inner = [members for members in classes if not is_outer(members)]
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
        for part in (outer, inner)
    )
    if not inner:
        if len(stages) == 1 or not outer:
            return None
        inner = [outer.pop()]
    ordered = [*outer, *inner]
    arranged = [nest.arrange([m[s] for m in ordered if s in m]) for s, nest in enumerate(nests)]
    present = [[s in m for m in ordered] for s in range(len(nests))]
    return _collapse(arranged, present, len(outer))


def _aligned(nests: Sequence[Nest], classes: list[dict[int, int]]) -> list[dict[int, int]]:
    """Classes of different stages and equal extent, together: nothing ties them, but a loop can hold them."""
    result: list[dict[int, int]] = []
    for members in classes:
        (s, d), *_ = members.items()
        host = next(
            (
                other
                for other in result
                if not other.keys() & members.keys()
                and all(nests[t].sizes[e] == nests[s].sizes[d] for t, e in other.items())
            ),
            None,
        )
        if host is None:
            result.append(dict(members))
        else:
            host.update(members)
    return result


def _collapse(
    nests: list[Nest], present: list[list[bool]], outer: int
) -> tuple[list[Nest], list[bool]] | None:
    """Neighbouring dimensions merged where all nests allow it; None where more than one remains in a row."""
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
    if len(present[0]) - outer != 1:
        return None
    return nests, [here[-1] for here in present]


def _suited(nests: Sequence[Nest], wide: Sequence[bool], target: CpuTarget) -> bool:
    """Whether vectors along the row pay."""
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


def _consistent(nests: Sequence[Nest], wide: Sequence[bool]) -> bool:
    """Whether every stage reads earlier results at the point where they were written."""
    written: dict[int, tuple[Operand, bool]] = {}
    for nest, is_wide in zip(nests, wide, strict=True):
        for operand in nest.inputs:
            if operand.value not in written:
                continue
            producer, was_wide = written[operand.value]
            here, there = operand.strides, producer.strides
            here += () if is_wide else (ZERO,)
            there += () if was_wide else (ZERO,)
            if here != there or operand.offset != producer.offset:
                return False
        for output in nest.outputs:
            written[output.value] = (output, is_wide)
    return True


def _passes(nests: Sequence[Nest], wide: Sequence[bool]) -> tuple[tuple[int, ...], ...]:
    passes: list[list[int]] = []
    for s, nest in enumerate(nests):
        joins = bool(passes) and wide[s] and wide[passes[-1][-1]]
        if joins:
            reduced = {
                output.value
                for t in passes[-1]
                if nests[t].kinds[-1] == "reduction"
                for output in nests[t].outputs
            }
            same = {_sequential(nests[t]) for t in passes[-1]}
            joins = same == {_sequential(nest)} and not any(
                operand.value in reduced for operand in nest.inputs
            )
        if joins:
            passes[-1].append(s)
        else:
            passes.append([s])
    return tuple(map(tuple, passes))


def _combiners(nest: Nest) -> list[Combiner | None]:
    return [combiner(nest.stage, k) for k in range(len(nest.outputs))]


def _sequential(nest: Nest) -> bool:
    """Whether the points of a row must be taken one after the other."""
    return nest.kinds[-1:] == ("reduction",) and any(found is None for found in _combiners(nest))


def _placed(kernel: Kernel, stages: range, found: Group) -> Group:
    """`found`, with a place for every temporary that only the group sees."""
    pass_of = {s: number for number, each in enumerate(found.passes) for s in each}
    elsewhere = {
        access.value
        for s, stage in enumerate(kernel.stages)
        if s not in stages
        for access in (*stage.inputs, *stage.outputs, *(i for i in stage.inits if isinstance(i, Access)))
    }
    private: set[int] = set()
    kept: set[int] = set()
    places: dict[int, Operand] = {}
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
            length = nest.sizes[-1].known
            near = length is not None and scratch + length * item_bytes(output.dtype) <= _NEAR
            host = None if near else _host(kernel, found, pass_of, s, output, readers, taken)
            if host is not None:
                taken.add(host.value)
                places[value] = host
            elif length is not None and scratch + length * item_bytes(output.dtype) <= _SCRATCH:
                offsets[value] = scratch
                scratch += -(-length * item_bytes(output.dtype) // _LINE) * _LINE + _LINE  # see `_shift`
                places[value] = replace(output, offset=(), strides=(*[ZERO] * (len(output.strides) - 1), ONE))
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


def _host(
    kernel: Kernel,
    found: Group,
    pass_of: Mapping[int, int],
    producer: int,
    output: Operand,
    readers: Sequence[int],
    taken: set[int],
) -> Operand | None:
    """A result that is written only when the temporary has been read for the last time, and can hold it till
    then. A result may lie in an argument's memory, so that no argument like it may be read meanwhile."""
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


# -- dividing a row by one number ----------------------------------------------------------------------


def _multiplied(nest: Nest) -> Nest:
    """`nest` with every f32 or f64 division of a row's elements by one number as a multiplication.

    Both are first scaled by 2^±64 where the reciprocal could overflow or be subnormal.
    """
    stage = nest.stage
    inputs = len(stage.inputs) + len(stage.outputs)
    uniform = {k for k, operand in enumerate(nest.inputs) if operand.strides[-1] == ZERO}
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
        divides = scalar.op == "arith.divf" and scalar.dtype in ("f32", "f64") and position not in uniform
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


# -- emission ------------------------------------------------------------------------------------------


def emit_group(
    module: ir.Module,
    symbol: str,
    kernel: Kernel,
    target: CpuTarget,
    found: Group,
    workspaces: Mapping[int, int],
) -> Expr:
    """Define `symbol`, the phase that runs the group; how many tasks it has."""
    f = Frame(module, symbol, kernel, workspaces, found.offsets)
    f.scales = target.scales
    wide = found.wide.index(True)
    lanes = min(_lanes(nest, target) for nest in found.nests)
    streamed = _streamed(kernel, found, lanes)
    ahead = _ahead(kernel, found)
    head = _shift(f, found, lanes, [operand for each in ahead.values() for operand in each])
    nest = found.nests[wide]
    cost = sum(nanoseconds(each, lanes) for each in found.nests)
    division = Division.of(nest.sizes[:-1], nest.sizes[-1], cost, cut=not found.reduces, multiple=4 * lanes)

    def row(indices: list[Index], first: Index, end: Index) -> None:
        writer = _Row(f, found, indices, lanes, head, {})
        for number, members in enumerate(found.passes):
            if found.wide[members[0]]:
                writer.run(members, first, end, streamed.get(number, ()), ahead.get(number, ()))
            else:
                writer.alone(members[0])

    division.loop(f, row)
    if streamed:
        f.fence("seq_cst")  # such stores are not ordered with those that tell others of the task's end
    f.finish()
    return division.tasks


def _streamed(kernel: Kernel, found: Group, lanes: int) -> dict[int, list[Operand]]:
    """By pass, the results that may be written past the caches: large, or of unknown size, read by nobody, and
    written in whole vectors by a pass without reductions."""
    hosts = {place.value for place in found.places.values()}
    read = {access.value for stage in kernel.stages for access in stage.inputs} | hosts
    result: dict[int, list[Operand]] = {}
    for number, members in enumerate(found.passes):
        nests = [found.nests[s] for s in members]
        if any(nest.kinds[-1:] != ("parallel",) for nest in nests) or not found.wide[members[0]]:
            continue
        written = [operand for nest in nests for operand in nest.outputs if operand.value not in found.private]
        sizes = [result_bytes(kernel, operand.value).known for operand in written]
        if written and all(
            operand.value not in read
            and (size is None or size >= STREAM)
            and item_bytes(operand.dtype) * lanes >= 16
            for operand, size in zip(written, sizes, strict=True)
        ):
            result[number] = written
    return result


def _ahead(kernel: Kernel, found: Group) -> dict[int, list[Operand]]:
    """By pass, what it asks for of the next row: the pass that first reads a value waits for memory, so another
    one, the slowest, brings it."""
    wide = [number for number, members in enumerate(found.passes) if found.wide[members[0]]]
    cost = {n: sum(_work(found.nests[s]) for s in found.passes[n]) for n in wide}
    result: dict[int, list[Operand]] = {}
    seen: set[int] = set()
    for number in wide:
        for operand in (operand for s in found.passes[number] for operand in found.nests[s].inputs):
            if operand.value in seen or operand.value in found.private:
                continue
            seen.add(operand.value)
            length = found.nests[found.passes[number][0]].sizes[-1].known
            size = result_bytes(kernel, operand.value).known
            others = [n for n in wide if n != number]
            if (
                len(operand.strides) > 1
                and operand.strides[-1] == ONE
                and operand.strides[-2] != ZERO
                and length is not None
                and length * item_bytes(operand.dtype) <= _AHEAD
                and (size is None or size >= _FAR)
                and others
            ):
                result.setdefault(max(others, key=lambda n: cost[n]), []).append(operand)
    return result


def _shift(f: Frame, found: Group, lanes: int, far: Sequence[Operand]) -> Index:
    """How many elements of each row lie before the first whole vector in memory, by the first of `far`, large inputs
    whose rows begin alike; scratch is moved to begin as they do. A vector across two lines is read twice. 0 where
    the passes take no longer than memory, or rows are too short to gain by it."""
    operand = next(iter(far), None)
    if operand is None or item_bytes(operand.dtype) * lanes != _LINE:
        return 0
    wide = [members for members in found.passes if found.wide[members[0]]]
    busy = any(sum(_work(found.nests[s]) for s in members) >= _BUSY for members in wide)
    length = found.nests[found.wide.index(True)].sizes[-1].known
    if not busy or length is None or length < _LONG * lanes:
        return 0
    if any(stride.known is None or stride.known % lanes for stride in operand.strides[:-1]):
        return 0
    item = item_bytes(operand.dtype)
    address: Value = f.ptrtoint(f.address(operand, [0] * len(operand.strides)), I64)
    before = f.and_(f.udiv(address, f.index(item)), f.index(lanes - 1))
    for value in found.offsets:
        if item_bytes(f.kernel.values[value].dtype) == item:
            f.move(value, before)
    return f.and_(f.sub(f.index(lanes), before), f.index(lanes - 1))


def _work(nest: Nest) -> int:
    """Operations for each element of a row of a wide nest, elementary functions counted as eight."""
    inputs = len(nest.inputs) + len(nest.outputs)
    moving = {k for k, operand in enumerate(nest.inputs) if operand.strides[-1] != ZERO}
    moving.update(range(len(nest.inputs), inputs))
    total = 0
    for position, scalar in enumerate(nest.body, start=inputs):
        if scalar.op == "linalg.index" or moving.intersection(scalar.operands):
            moving.add(position)
            total += 8 if scalar.op.startswith("math.") else 1
    return total


def _lanes(nest: Nest, target: CpuTarget) -> int:
    dtypes = [operand.dtype for operand in (*nest.inputs, *nest.outputs)]
    dtypes += [scalar.dtype for scalar in nest.body if scalar.dtype not in ("index", "i1")]
    return min(target.lanes(max(32, ITEM_BITS[d]) if is_float(d) else ITEM_BITS[d]) for d in dtypes)


@dataclass
class _Row:
    """Emits one row. `head` elements of it come before whole vectors. `scalars` holds the row's own values, as
    carried: results of stages without the row's dimension, or that reduce it."""

    f: Frame
    group: Group
    indices: list[Index]
    lanes: int
    head: Index
    scalars: dict[int, Value]

    def alone(self, s: int) -> None:
        """A stage with one point per row."""
        nest = self.group.nests[s]
        lanes = Lanes(None, 1)
        known = {k: self.read(operand, self.indices, lanes, {}) for k, operand in enumerate(nest.inputs)}
        values = self.evaluated(nest, known, self.initial(nest), self.indices, lanes, nest.stage.yields)
        for operand, position in zip(nest.outputs, nest.stage.yields, strict=True):
            self.keep(operand, values[position])

    def run(
        self,
        members: Sequence[int],
        first: Index,
        end: Index,
        streamed: Sequence[Operand],
        ahead: Sequence[Operand],
    ) -> None:
        """One pass over the row's elements `[first, end)`; `streamed` may go past the caches, the next row of
        `ahead` is asked for."""
        if not streamed:
            self.over(members, first, end, ahead, False)
            return
        self.f.branches(
            self.suits_streams(streamed, first, end),
            lambda: self.over(members, first, end, ahead, True),
            lambda: self.over(members, first, end, ahead, False),
        )

    def suits_streams(self, operands: Sequence[Operand], first: Index, end: Index) -> Value:
        """Whether the rows of `operands` begin and end with lines, and are parts of something large."""
        f = self.f
        result: Value = None
        for operand in operands:
            length = f.imul(f.isub(end, first), item_bytes(operand.dtype))
            bits = f.or_(f.ptrtoint(f.address(operand, [*self.indices, first]), I64), f.index(length))
            test: Value = f.icmp_unsigned("==", f.and_(bits, f.index(_LINE - 1)), f.index(0))
            size = result_bytes(f.kernel, operand.value)
            if size.known is None:
                test = f.and_(test, f.icmp_signed(">=", f.index(f.extent(size)), f.index(STREAM)))
            result = test if result is None else f.and_(result, test)
        return result

    def following(self) -> list[Index]:
        """The next row's indices, as far as the innermost goes; behind its end the same row."""
        f, nest = self.f, self.group.nests[self.group.wide.index(True)]
        last = f.isub(f.extent(nest.sizes[-2]), 1)
        return [*self.indices[:-1], f.imin(f.iadd(self.indices[-1], 1), last)]

    def over(
        self, members: Sequence[int], first: Index, end: Index, ahead: Sequence[Operand], streaming: bool
    ) -> None:
        f = self.f
        nests = [self.group.nests[s] for s in members]
        sequential = any(_sequential(nest) for nest in nests)
        lanes = 1 if sequential else self.lanes
        known = [self.uniform(nest) for nest in nests]
        step = _Step(self, nests, known, lanes, streaming, ahead, self.following() if ahead else [])
        heavy = any(scalar.op.startswith("math.") for nest in nests for scalar in nest.body)
        vectors = 1 if sequential else 2 if heavy else 4
        carried = step.begin(vectors)
        width = len(carried) // vectors
        if sequential:
            carried = f.loop(first, end, 1, lambda j, values: step(j, 1, None, values), carried)
            step.end([carried])
            return
        size = vectors * step.lanes
        if not streaming and isinstance(self.head, ir.Value):
            begin = f.imin(f.iadd(first, self.head), end)
            one = f.loop(first, begin, lanes, lambda j, values: step(j, 1, f.isub(begin, j), values), carried[:width])
            first, carried = begin, [*one, *carried[width:]]
        middle = f.isub(end, f.irem(f.isub(end, first), size))
        carried = f.loop(first, middle, size, lambda j, values: step(j, vectors, None, values), carried)
        one, rest = carried[:width], carried[width:]
        last = f.isub(end, f.irem(f.isub(end, middle), step.lanes))
        one = f.loop(middle, last, step.lanes, lambda j, values: step(j, 1, None, values), one)
        if step.lanes > 1:
            one = f.loop(last, end, step.lanes, lambda j, values: step(j, 1, f.isub(end, j), values), one)
        step.end([one, *(rest[u : u + width] for u in range(0, len(rest), width or 1))])

    # -- values ----------------------------------------------------------------------------------

    def read(
        self, operand: Operand, point: Sequence[Index], lanes: Lanes, fresh: Mapping[int, Value]
    ) -> Value:
        if operand.value in fresh:
            return fresh[operand.value]
        if operand.value in self.scalars:
            return self.scalars[operand.value]
        place = self.group.places.get(operand.value)
        if place is not None:
            operand = replace(place, dtype=operand.dtype)
        return load_values(self.f, operand, point, lanes)

    def initial(self, nest: Nest) -> list[Value]:
        """What the outputs hold before, one scalar each; not for outputs that run along the row."""
        values: list[Value] = []
        for init, output in zip(nest.inits, nest.outputs, strict=True):
            if isinstance(init, Operand):
                values.append(
                    load_values(self.f, init, [*self.indices, 0][: len(nest.sizes)], Lanes(None, 1))
                )
            else:
                values.append(constant(output.dtype, 0 if init is None else init))
        return values

    def uniform(self, nest: Nest) -> dict[int, Value]:
        """The body values that are the same all along the row."""
        point = [*self.indices, 0]
        known = {
            k: self.read(operand, point, Lanes(None, 1), {})
            for k, operand in enumerate(nest.inputs)
            if operand.strides[-1] == ZERO
        }
        count = len(nest.inputs) + len(nest.outputs)
        return evaluate(self.f, nest.body, count, known, None, self.wanted(nest))

    def wanted(self, nest: Nest) -> list[int]:
        if nest.kinds[-1:] == ("parallel",) or _sequential(nest):
            return list(nest.stage.yields)
        return [found.term for found in _combiners(nest) if found is not None]

    def evaluated(
        self,
        nest: Nest,
        known: Mapping[int, Value],
        running: Sequence[Value],
        point: Sequence[Index],
        lanes: Lanes,
        wanted: Sequence[int],
    ) -> dict[int, Value]:
        values = {**known, **{len(nest.inputs) + k: value for k, value in enumerate(running)}}

        def index(d: int) -> Value:
            return index_values(self.f, point[nest.dims[d]], lanes, nest.dims[d])

        return evaluate(self.f, nest.body, len(nest.inputs) + len(nest.outputs), values, index, wanted)

    def keep(self, operand: Operand, value: Value) -> None:
        """A row's own value: for later stages, and in memory where others read it."""
        self.scalars[operand.value] = value
        if operand.value not in self.group.private:
            store_values(self.f, value, operand, [*self.indices, 0][: len(operand.strides)], Lanes(None, 1))


@dataclass
class _Step:
    """The body of a pass: all its stages at some vectors of a row, accumulators carried along."""

    row: _Row
    nests: Sequence[Nest]
    known: Sequence[dict[int, Value]]
    lanes: int
    streaming: bool
    ahead: Sequence[Operand]
    following: list[Index]

    def __post_init__(self) -> None:
        reducing = [nest for nest in self.nests if nest.kinds[-1] == "reduction"]
        self.gatherings = [
            None if found is None or _sequential(nest) else gathering(found, self.lanes)
            for nest in reducing
            for found in _combiners(nest)
        ]

    def begin(self, vectors: int) -> list[Value]:
        """The accumulators before the first element, those of each vector together."""
        one: list[Value] = []
        initial = [value for nest in self.nests if nest.kinds[-1] == "reduction" for value in self.row.initial(nest)]
        for gather, value in zip(self.gatherings, initial, strict=True):
            one += [value] if gather is None else gather.start()
        return one * vectors

    def __call__(self, start: Index, vectors: int, active: Index | None, carried: list[Value]) -> list[Value]:
        f = self.row.f
        width = len(carried) // vectors
        parts = [carried[u * width : (u + 1) * width] for u in range(vectors)]
        if active is None:
            self.prefetch(start, vectors)
        terms = [self.once(f.iadd(start, u * self.lanes), active, part) for u, part in enumerate(parts)]
        position = 0
        for number, gather in enumerate(self.gatherings):
            if gather is None:
                parts[0][position] = terms[0][number]
                position += 1
                continue
            here = slice(position, position + gather.width)
            after = gather.add(f, [part[here] for part in parts], [each[number] for each in terms])
            for part, new in zip(parts, after, strict=True):
                if active is not None:
                    mask = f.lane_mask(active, self.lanes)
                    new = [f.select(mask, now, old) for now, old in zip(new, part[here], strict=True)]
                part[here] = new
            position += gather.width
        return [value for part in parts for value in part]

    def prefetch(self, start: Index, vectors: int) -> None:
        """Ask for what the next row has at these vectors, line by line."""
        f = self.row.f
        for operand in self.ahead:
            item = item_bytes(operand.dtype)
            near = (self.nests[0].sizes[-1].known or 0) * item <= _FIRST
            for at in range(0, vectors * self.lanes, max(1, _LINE // item)):
                f.prefetch(f.address(operand, [*self.following, f.iadd(start, at)]), near)

    def once(self, at: Index, active: Index | None, carried: Sequence[Value]) -> list[Value]:
        """One vector: its results are stored, the terms of its reductions returned (of sequential ones the new
        values, which depend on those carried)."""
        row, f = self.row, self.row.f
        point = [*row.indices, at]
        lanes = Lanes(len(point) - 1, self.lanes, active)
        fresh: dict[int, Value] = {}
        result: list[Value] = []
        for nest, uniform in zip(self.nests, self.known, strict=True):
            known = dict(uniform)
            for k, operand in enumerate(nest.inputs):
                if k not in known:
                    known[k] = row.read(operand, point, lanes, fresh)
            if nest.kinds[-1] == "reduction":
                result += self.terms(nest, known, point, lanes, carried[len(result) :])
                continue
            running = self.running(nest, point, lanes)
            values = row.evaluated(nest, known, running, point, lanes, nest.stage.yields)
            for operand, position in zip(nest.outputs, nest.stage.yields, strict=True):
                fresh[operand.value] = values[position]
                place = row.group.places.get(operand.value, operand)
                if operand.value not in row.group.private or operand.value in row.group.kept:
                    streaming = self.streaming and operand.value not in row.group.private
                    store_values(f, values[position], place, point, lanes, streaming)
        return result

    def running(self, nest: Nest, point: Sequence[Index], lanes: Lanes) -> list[Value]:
        return [
            load_values(self.row.f, init, point, lanes)
            if isinstance(init, Operand)
            else constant(output.dtype, 0 if init is None else init)
            for init, output in zip(nest.inits, nest.outputs, strict=True)
        ]

    def terms(
        self,
        nest: Nest,
        known: dict[int, Value],
        point: Sequence[Index],
        lanes: Lanes,
        carried: Sequence[Value],
    ) -> list[Value]:
        row, f = self.row, self.row.f
        if _sequential(nest):
            values = row.evaluated(nest, known, carried[: len(nest.outputs)], point, lanes, nest.stage.yields)
            return [values[position] for position in nest.stage.yields]
        values = row.evaluated(nest, known, [], point, lanes, row.wanted(nest))
        combiners = [found for found in _combiners(nest) if found is not None]
        return [widen(f, found.widened(f, values[found.term]), self.lanes) for found in combiners]

    def end(self, parts: Sequence[Sequence[Value]]) -> None:
        """Bring the accumulators of all vectors to one number per output."""
        row, f = self.row, self.row.f
        position = 0
        gatherings = iter(self.gatherings)
        for nest in self.nests:
            if nest.kinds[-1] != "reduction":
                continue
            for output, start in zip(nest.outputs, row.initial(nest), strict=True):
                gather = next(gatherings)
                if gather is None:
                    row.keep(output, parts[0][position])
                    position += 1
                    continue
                found = gather.found
                mine = [part[position : position + gather.width] for part in parts]
                position += gather.width
                total = found.combine(f, found.widened(f, start), gather.total(f, mine))
                row.keep(output, found.narrowed(f, total))


class Gathering:
    """What a vector of a row's accumulators is carried as: here, the combiner's own values."""

    width = 1

    def __init__(self, found: Combiner, lanes: int) -> None:
        self.found = found
        self.lanes = lanes

    def start(self) -> list[Value]:
        return [constant(self.found.accumulator, self.found.identity, self.lanes)]

    def add(
        self, f: Frame, carried: Sequence[Sequence[Value]], terms: Sequence[Value]
    ) -> list[list[Value]]:
        """A term for each of several vectors of accumulators."""
        return [[self.found.combine(f, part[0], term)] for part, term in zip(carried, terms, strict=True)]

    def merge(self, f: Frame, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        """What two vectors, or two scalars, carry as one."""
        return [self.found.combine(f, a[0], b[0])]

    def across(self, f: Frame, carried: Sequence[Value]) -> Value:
        return self.found.across(f, carried[0])

    def total(self, f: Frame, parts: Sequence[Sequence[Value]]) -> Value:
        """One scalar from several vectors, by a tree."""
        parts = list(parts)
        while len(parts) > 1:
            pairs = [self.merge(f, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = [*pairs, *(parts[-1:] if len(parts) % 2 else [])]
        return self.across(f, parts[0])


class ExtremeGathering(Gathering):
    """The largest (smallest) number by one comparison for each term. What comparisons leave out is carried beside
    it: the signs of all terms, which tell zeros apart, and whether there was a NaN."""

    width = 3

    def __init__(self, found: Combiner, lanes: int) -> None:
        super().__init__(found, lanes)
        self.greatest = found.op == "arith.maximumf"

    def start(self) -> list[Value]:
        bits = ir.VectorType(ir.IntType(ITEM_BITS[self.found.accumulator]), self.lanes)
        unseen = ir.Constant(ir.VectorType(ir.IntType(1), self.lanes), None)
        return [*super().start(), ir.Constant(bits, [-1 if self.greatest else 0] * self.lanes), unseen]

    def better(self, f: Frame, new: Value, old: Value) -> Value:
        return f.select(f.fcmp_ordered(">" if self.greatest else "<", new, old), new, old)

    def signs(self, f: Frame, a: Value, b: Value) -> Value:
        return f.and_(a, b) if self.greatest else f.or_(a, b)

    def add(
        self, f: Frame, carried: Sequence[Sequence[Value]], terms: Sequence[Value]
    ) -> list[list[Value]]:
        """The first of two neighbours carries the signs of both, and whether either is a NaN: one comparison."""
        result: list[list[Value]] = []
        for u, (part, term) in enumerate(zip(carried, terms, strict=True)):
            best, signs, strange = part
            best = self.better(f, term, best)
            if u % 2 == 0:
                near = terms[u + 1] if u + 1 < len(terms) else term
                pair = self.signs(f, *(f.bitcast(each, signs.type) for each in (term, near)))
                signs = self.signs(f, signs, pair)
                strange = f.or_(strange, f.fcmp_unordered("uno", term, near))
            result.append([best, signs, strange])
        return result

    def merge(self, f: Frame, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        return [self.better(f, a[0], b[0]), self.signs(f, a[1], b[1]), f.or_(a[2], b[2])]

    def across(self, f: Frame, carried: Sequence[Value]) -> Value:
        best, signs, seen = carried
        lanes = ir.IntType(self.lanes)
        strange: Value = f.icmp_unsigned("!=", f.bitcast(seen, lanes), ir.Constant(lanes, 0))
        half = self.lanes // 2
        while half:
            best = self.better(f, *(_lanes_from(f, best, at, half) for at in (0, half)))
            signs = self.signs(f, *(_lanes_from(f, signs, at, half) for at in (0, half)))
            half //= 2
        arithmetic = Arithmetic(f, best.type)
        zero = arithmetic.with_sign(0.0, f.bitcast(signs, best.type))
        best = f.select(arithmetic.compare("==", best, 0.0), zero, best)
        return f.select(strange, arithmetic.number(float("nan")), best)


def gathering(found: Combiner, lanes: int) -> Gathering:
    extreme = lanes > 1 and found.op in ("arith.maximumf", "arith.minimumf")
    return (ExtremeGathering if extreme else Gathering)(found, lanes)


def _lanes_from(f: Frame, vector: Value, start: int, count: int) -> Value:
    """`count` lanes of `vector`, a scalar for one."""
    if count == 1:
        return f.extract_element(vector, ir.Constant(I32, start))
    undefined = ir.Constant(vector.type, ir.Undefined)
    pick = ir.Constant(ir.VectorType(I32, count), list(range(start, start + count)))
    return f.shuffle_vector(vector, undefined, pick)
