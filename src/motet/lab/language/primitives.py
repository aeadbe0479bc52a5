"""Schedules built step by step in Python: loops are cursors, and every step is checked.

    s = schedule(kernel)                        a product: loops i, j, k
    i, j, k = s.loops()
    ii, jj = s.tile({i: 4, j: 32})              i, j, k, i#4, j#32
    s.unroll(ii); s.vectorize(jj); s.parallelize(i); s.pack("B", k)

A cursor refers to its loop after any later step. A step that is not legal raises ScheduleError and changes nothing;
`schedule(kernel, target)` checks for the registers of a CPU level, too.
Source of the idea: Exo 2's cursors, and libraries of schedules as functions over primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.loop_names import loop_names, main_stage, stage_name
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.nest_dependences import dependences
from motet.compiler.kernels.nested_stage import NestReason
from motet.compiler.kernels.schedule import Nest, NestFusion, NestLoop, NestSchedule, StageNest
from motet.compiler.schedule_text.default_nests import default_nest
from motet.compiler.schedule_text.formatting import format_schedule
from motet.compiler.schedule_text.parsing import check_schedule, with_microkernels
from motet.compiler.targets.cpu import CpuTarget
from motet.errors import OptionError, ScheduleError
from motet.lab.language.nest_tree import (
    CopyNode,
    LoopNode,
    NestTree,
    divided,
    permuted,
    tree_of,
    with_loop,
    with_tile,
)


@dataclass(frozen=True)
class Cursor:
    """A loop of the nest of stage number `stage`, whatever becomes of its neighbours."""

    stage: int
    key: int


@dataclass(frozen=True)
class _StageTrees:
    """The trees of stages, and the fusions: a stage, and the cursor at which it is fused."""

    trees: Mapping[int, NestTree]
    fused: Mapping[int, Cursor] = field(default_factory=dict[int, Cursor])


class LoopSchedule:
    """A schedule of `kernel` that primitives change. It begins with plain loops of the main stage, `main`, and nests by
    default of the other stages."""

    def __init__(self, kernel: Kernel, target: CpuTarget | None = None) -> None:
        main = main_stage(kernel)
        if main is None:
            raise OptionError(f"schedule: kernel {kernel.name} has no loops")
        self.kernel, self.target = kernel, target
        self.main = main
        self._keys = count()
        self._microkernels: dict[str, Microkernel] = {}
        nests = {s: _plain_nest(kernel, s) if s == main else default_nest(kernel, s) for s in range(len(kernel.stages))}
        self._state = _StageTrees({s: tree_of(nest, self._keys) for s, nest in nests.items()})

    # -- reading ---------------------------------------------------------------

    def data(self) -> NestSchedule:
        """The schedule as the compiler takes it. Raises ScheduleError for one that the target has no code for, which
        further steps could have made legal."""
        made = self._data(self._state)
        self._expect_code(made, complete=True)
        return made

    def text(self) -> str:
        """The schedule in the declarative form."""
        return format_schedule(self.data(), self.kernel)

    def loops(self, stage: int | None = None) -> list[Cursor]:
        """Cursors of all loops of a stage, of the main one if None, outermost first."""
        s = self.main if stage is None else stage
        return [Cursor(s, node.key) for node in self._tree(s).nodes()]

    def loop(self, label: str, stage: int | None = None) -> Cursor:
        """The cursor of the first loop with `label`, as `i` or `i#4`."""
        for cursor in self.loops(stage):
            if self.label(cursor) == label:
                return cursor
        labels = ", ".join(self.label(each) for each in self.loops(stage))
        raise ScheduleError("loop", label, "the nest has no such loop", f"one of {labels}")

    def label(self, cursor: Cursor) -> str:
        """The label that the loop has now."""
        return self._node(cursor).loop.label

    def dim(self, cursor: Cursor) -> int:
        """The dimension of the stage that the loop runs along."""
        return loop_names(self.kernel).dims[cursor.stage].index(self._node(cursor).loop.dim)

    def operand(self, number: int) -> str:
        """The name of operand `number` of the main stage."""
        return loop_names(self.kernel).values[self.kernel.stages[self.main].inputs[number].value]

    # -- primitives ------------------------------------------------------------

    def strip_mine(self, loop: Cursor, size: int) -> Cursor:
        """Adds a loop over `size` elements directly inside `loop`, which steps by them, and returns it."""
        return self._tiled(loop, size, innermost=False, primitive="strip_mine")

    def tile(self, sizes: Mapping[Cursor, int]) -> list[Cursor]:
        """Adds innermost loops over tiles of several loops, in the order of `sizes`, and returns them."""
        before = self._state
        try:
            return [self._tiled(loop, size, innermost=True, primitive="tile") for loop, size in sizes.items()]
        except ScheduleError:
            self._state = before
            raise

    def split(self, loop: Cursor, *cuts: int) -> list[list[Cursor]]:
        """Divides the dimension of `loop`, a loop over all of it, at `cuts`, ascending. Returns the loops of each part;
        those of the first part are the ones of before."""
        tree = self._tree(loop.stage)
        label = self.label(loop)
        if not cuts:
            raise ScheduleError("split", label, "no cuts are given", "elements at which parts begin")
        if self._node(loop).loop.tile is not None:
            raise ScheduleError("split", label, "it is a tile", "a loop over the whole dimension")

        def edit(nest: NestTree, position: int) -> NestTree:
            return divided(nest, position, cuts, self._keys)

        self._change(loop.stage, tree.edited(loop.key, edit))
        parts = next(found for found in _part_lists(self._tree(loop.stage)) if loop.key in {n.key for n in found[0]})
        return [[Cursor(loop.stage, node.key) for node in part] for part in parts]

    def interchange(self, *order: Cursor) -> None:
        """Puts loops of one nest in this order, at the positions that they have together."""
        if not order or len(set(order)) != len(order):
            raise ScheduleError("interchange", "loops", "a loop is given twice, or none", "each loop once")
        for cursor in order:
            self._node(cursor)
        keys = tuple(cursor.key for cursor in order)

        def edit(nest: NestTree, position: int) -> NestTree:
            if not set(keys) <= {node.key for node in nest.loops}:
                others = ", ".join(node.loop.label for node in nest.loops)
                raise ScheduleError("interchange", self.label(order[0]), "the loops are of several nests",
                                    f"some of {others}")
            return permuted(nest, keys)

        self._change(order[0].stage, self._tree(order[0].stage).edited(keys[0], edit))

    def vectorize(self, loop: Cursor) -> None:
        """Makes the iterations of an innermost loop lanes of vectors."""
        self._marked(loop, lambda nest, position: with_loop(nest, position, vectorize=True))

    def unroll(self, loop: Cursor, copies: int | None = None) -> None:
        """Makes `copies` iterations copies of the body, None for all."""
        if copies is not None and copies < 1:
            raise ScheduleError("unroll", self.label(loop), f"{copies} is no number of copies", "a number from 1")
        self._marked(loop, lambda nest, position: with_loop(nest, position, unroll=copies or 0))

    def parallelize(self, loop: Cursor) -> None:
        """Makes the iterations of an outermost loop tasks, which run at the same time."""
        self._marked(loop, lambda nest, position: with_loop(nest, position, parallel=True))

    def distribute(self, *loops: Cursor) -> None:
        """Moves `loops` outermost, in their order, and makes their iterations tasks of threads or cores."""
        before = self._state
        rest = [each for each in self.loops(loops[0].stage) if each not in loops] if loops else []
        try:
            self.interchange(*loops, *rest)
            for loop in loops:
                self.parallelize(loop)
        except ScheduleError:
            self._state = before
            raise

    def split_reduction(self, loop: Cursor, size: int) -> Cursor:
        """Makes each `size` elements of a reduction a task that leaves partial results, which are combined afterwards:
        moves `loop` inside the tasks that there are, and adds a loop over `size` elements inside of it, which it
        returns."""
        before = self._state
        try:
            inner = self._tiled(loop, size, innermost=False, primitive="split_reduction")
            order = [each for each in self.loops(loop.stage) if each != loop]
            tasks = [each for each in order if self._node(each).loop.is_task]
            self.interchange(*tasks, loop, *(each for each in order if each not in tasks))
            self._marked(loop, lambda nest, position: with_loop(nest, position, split_reduction=True))
        except ScheduleError:
            self._state = before
            raise
        return inner

    def tensorize(self, loop: Cursor, kernel: Microkernel) -> None:
        """Replaces `loop` and those inside by a microkernel. Their flags describe the code of incomplete tiles."""
        before = self._microkernels
        self._microkernels = {**before, kernel.name: kernel}
        try:
            self._marked(loop, lambda nest, position: with_loop(nest, position, tensorize=kernel.name))
        except ScheduleError:
            self._microkernels = before
            raise

    def pack(self, value: str, loop: Cursor, padding: int = 0) -> None:
        """Copies what one iteration of `loop` reads of operand `value`, with `padding` elements after each row."""
        self._copied("pack", value, loop, padding)

    def buffer(self, value: str, loop: Cursor) -> None:
        """Keeps what one iteration of `loop` writes of result `value` in scratch memory until it is complete."""
        self._copied("buffer", value, loop, 0)

    def fuse(self, stage: int, loop: Cursor) -> None:
        """Computes stage number `stage`, a producer or a consumer, inside `loop` of another stage."""
        if stage not in self._state.trees:
            raise ScheduleError("fuse", stage_name(stage), "it has no nest", "a stage that is not fused yet")
        if any(at.stage == stage for at in self._state.fused.values()) or loop.stage == stage:
            raise ScheduleError("fuse", stage_name(stage), "stages are fused into it", "a stage without fused ones")
        self._node(loop)
        trees = {s: tree for s, tree in self._state.trees.items() if s != stage}
        self._set(_StageTrees(trees, {**self._state.fused, stage: loop}))

    # -- steps -----------------------------------------------------------------

    def _tree(self, stage: int) -> NestTree:
        if stage not in self._state.trees:
            known = ", ".join(stage_name(s) for s in self._state.trees)
            raise ScheduleError("loop", stage_name(stage), "the stage has no nest", f"one of {known}")
        return self._state.trees[stage]

    def _node(self, cursor: Cursor) -> LoopNode:
        for node in self._tree(cursor.stage).nodes():
            if node.key == cursor.key:
                return node
        name = stage_name(cursor.stage)
        raise ScheduleError("loop", name, "the cursor is of another schedule", "a cursor of this one")

    def _tiled(self, loop: Cursor, size: int, innermost: bool, primitive: str) -> Cursor:
        dim, label = self._node(loop).loop.dim, self.label(loop)
        if size < 1:
            raise ScheduleError(primitive, label, f"{size} is no size", "a number of elements from 1")
        added = LoopNode(next(self._keys), NestLoop(dim, size))
        tree = self._tree(loop.stage)
        self._change(loop.stage, tree.edited(loop.key, lambda nest, at: with_tile(nest, at, added, innermost)))
        return Cursor(loop.stage, added.key)

    def _marked(self, loop: Cursor, edit: Callable[[NestTree, int], NestTree]) -> None:
        self._node(loop)
        self._change(loop.stage, self._tree(loop.stage).edited(loop.key, edit))

    def _copied(self, kind: str, value: str, loop: Cursor, padding: int) -> None:
        self._node(loop)

        def edit(nest: NestTree, position: int) -> NestTree:
            node = CopyNode(value, loop.key, padding)
            if kind == "pack":
                return replace(nest, packs=(*nest.packs, node))
            return replace(nest, buffers=(*nest.buffers, node))

        self._change(loop.stage, self._tree(loop.stage).edited(loop.key, edit))

    def _change(self, stage: int, tree: NestTree) -> None:
        self._set(replace(self._state, trees={**self._state.trees, stage: tree}))

    def _set(self, state: _StageTrees) -> None:
        """Takes `state` if it is legal. Raises ScheduleError if not."""
        made = self._data(state)
        check_schedule(made, self.kernel)
        self._expect_code(made, complete=False)
        self._state = state

    def _expect_code(self, made: NestSchedule, complete: bool) -> None:
        """Raises ScheduleError for the first reason why the target has no code for `made`."""
        from motet.compiler.codegen.cpu.nest.legality import check

        if self.target is None:
            return
        for reason in check(self.kernel, made, self.target, complete):
            why = reason.why if isinstance(reason, NestReason) else f"illegal for {self.target.name}"
            raise ScheduleError(reason.field, f"{reason.value}", why, reason.allowed)

    def _data(self, state: _StageTrees) -> NestSchedule:
        fused = [
            NestFusion(stage, node.loop.label) for stage, at in state.fused.items()
            for node in state.trees[at.stage].nodes() if node.key == at.key
        ]
        found = NestSchedule([StageNest(s, state.trees[s].nest()) for s in sorted(state.trees)], fused)
        return with_microkernels(found, list(self._microkernels.values()))


def schedule(kernel: Kernel, target: CpuTarget | None = None) -> LoopSchedule:
    """A schedule of `kernel` to be changed by primitives, each checked for `target`, if given, a CPU level such as
    `subject.program.target`. Raises OptionError for a kernel without loops."""
    return LoopSchedule(kernel, target)


def _plain_nest(kernel: Kernel, stage: int) -> Nest:
    """The dimensions of a stage as loops in their order, parallel ones first where the order does not matter."""
    found, names = kernel.stages[stage], loop_names(kernel).dims[stage]
    kept = sorted({d for each in dependences(kernel, stage) if each.ordered for d in each.carried})
    free = [d for d in range(len(names)) if d not in kept]
    free.sort(key=lambda d: found.iterators[d] == "reduction")
    return Nest([NestLoop(names[d]) for d in (*free, *kept)])


def _part_lists(tree: NestTree) -> Sequence[list[tuple[LoopNode, ...]]]:
    """The loops of the parts of each nest that has parts."""
    found = [[tuple(part.tree.nodes()) for part in tree.parts]] if tree.parts else []
    for part in tree.parts:
        found += _part_lists(part.tree)
    return found
