"""Schedules built by primitives: cursors survive edits, illegal steps change nothing, and the library is legal for any
extents."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.compiler.kernels.linalg_texts import MAXIMUM, kernel_of

from motet.compiler.codegen.cpu.select import check
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.nest_legality import nest_reasons
from motet.compiler.kernels.schedule import NestCopy
from motet.compiler.targets.cpu import RISCV64, X86_64_V3, X86_64_V4, CpuTarget
from motet.errors import OptionError, ScheduleError
from motet.lab.language import Cursor, LoopSchedule, parse_schedule, schedule, schedule_mapping
from motet.lab.language.library import conv, gemm, reduction, register_tile, rows
from motet.lab.subject import open_program, subject_of

SIZES = {"i": 48, "j": 64, "k": 80}
Step = Callable[[LoopSchedule, Cursor, Cursor, Cursor], object]


@pytest.fixture(scope="module")
def product() -> Kernel:
    return kernel_of("i,k ; k,j -> i,j", SIZES)


def test_steps_give_what_the_text_says(product: Kernel) -> None:
    s = schedule(product)
    i, j, k = s.loops()
    ii, jj = s.tile({i: 4, j: 32})
    s.unroll(ii)
    s.vectorize(jj)
    s.parallelize(i)
    s.pack("B", k, padding=2)
    assert s.data() == parse_schedule({
        "i": {"parallelize"}, "j": {}, "k": {}, "i#4": {"unroll"}, "j#32": {"vectorize"},
        "B": {"pack": {"at": "k", "padding": 2}},
    }, product)


def test_cursors_survive_edits(product: Kernel) -> None:
    s = schedule(product)
    i, j, k = s.loops()
    s.pack("B", k)
    kk = s.strip_mine(k, 16)
    s.interchange(k, j, i)
    parts = s.split(i, 20)
    assert [s.label(each) for each in (i, j, k, kk)] == ["i", "j", "k", "k#16"]
    assert [[s.label(each) for each in part] for part in parts] == [["i", "k#16"], ["i", "k#16"]]
    assert parts[0][0] == i and parts[1][0] != i
    s.unroll(parts[1][1])
    assert s.data() == parse_schedule({
        "k": {}, "j": {}, "B": {"pack": "k"}, "i[0:20]": {"k#16": {}}, "i[20:]": {"k#16": {"unroll"}},
    }, product)


def test_a_split_reduction_is_the_last_task(product: Kernel) -> None:
    s = schedule(product)
    i, j, k = s.loops()
    s.parallelize(i)
    inner = s.split_reduction(k, 16)
    s.vectorize(s.tile({j: 8})[0])
    assert s.label(inner) == "k#16"
    assert s.data() == parse_schedule(
        '{"i": {"parallelize"}, "k": {"split_reduction"}, "j": {}, "k#16": {}, "j#8": {"vectorize"}}', product)
    assert parse_schedule(s.text(), product) == s.data()


def test_copies_move_with_their_loops(product: Kernel) -> None:
    s = schedule(product)
    i, j, k = s.loops()
    jj = s.strip_mine(j, 8)
    s.pack("B", jj)
    s.buffer("C", k)
    s.distribute(j, i)
    s.split(k, 24)
    nest = s.data().nests[0].nest
    assert [(loop.label, loop.parallel) for loop in nest.loops] == [("j", True), ("i", True), ("j#8", False)]
    assert nest.packs == [NestCopy("B", "j#8")]
    assert [part.nest.buffers for part in nest.regions] == [[NestCopy("C", "k")], [NestCopy("C", "k")]]


@pytest.mark.parametrize(("step", "says"), [
    (lambda s, i, j, k: s.parallelize(k), "parallelize of k: .*race"),
    (lambda s, i, j, k: s.parallelize(j), "parallelize of j: i around it"),
    (lambda s, i, j, k: s.vectorize(i), "vectorize of i: j inside"),
    (lambda s, i, j, k: s.split_reduction(i, 8), "split_reduction of i: it is no reduction"),
    (lambda s, i, j, k: s.split_reduction(k, 0), "split_reduction of k: 0 is no size"),
    (lambda s, i, j, k: s.unroll(i, 0), "unroll of i: 0 is no number"),
    (lambda s, i, j, k: s.tile({i: 4, j: 0}), "tile of j: 0 is no size"),
    (lambda s, i, j, k: s.tile({i: 4, j: 8, k: -1}), "tile of k: -1 is no size"),
    (lambda s, i, j, k: s.split(i), "split of i: no cuts"),
    (lambda s, i, j, k: s.split(i, 9, 5), "split of i.9:5.: it has no elements"),
    (lambda s, i, j, k: s.split(i, 48), "split of i.48:.: it has no elements"),
    (lambda s, i, j, k: s.interchange(i, i), "interchange of loops: a loop is given twice"),
    (lambda s, i, j, k: s.interchange(), "interchange of loops"),
    (lambda s, i, j, k: s.pack("C", k), "pack of C: it is not an operand"),
    (lambda s, i, j, k: s.pack("B", k, padding=-1), "pack of B: padding is -1"),
    (lambda s, i, j, k: s.buffer("A", k), "buffer of A: it is not a result"),
    (lambda s, i, j, k: s.fuse(1, k), "fuse of stage1: it has no nest"),
    (lambda s, i, j, k: s.fuse(0, k), "fuse of stage0: stages are fused into it"),
    (lambda s, i, j, k: s.distribute(k), "parallelize of k"),
    (lambda s, i, j, k: s.loop("z"), "loop of z: the nest has no such loop; expected one of i, j, k"),
])
def test_illegal_steps_change_nothing(step: Step, says: str, product: Kernel) -> None:
    s = schedule(product)
    before = s.data()
    with pytest.raises(OptionError, match=says):
        step(s, *s.loops())
    assert s.data() == before


def _tile(s: LoopSchedule, i: int, j: int) -> tuple[Cursor, Cursor]:
    first, second, _ = s.loops()
    ii, jj = s.tile({first: i, second: j})
    return ii, jj


def test_more_sums_than_registers_are_refused_at_the_step(product: Kernel) -> None:
    s = schedule(product, X86_64_V3)
    ii, jj = _tile(s, 4, 64)
    s.unroll(ii)
    with pytest.raises(ScheduleError, match=r"illegal for x86-64-v3; expected at most 16 sums, .* register, not 32"):
        s.vectorize(jj)
    other = schedule(product, X86_64_V4)
    ii, jj = _tile(other, 4, 64)
    other.unroll(ii)
    other.vectorize(jj)
    assert not check(other.data(), product, X86_64_V4)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_that_are_rounded_on_the_way_are_refused_before_compiling(dtype: str) -> None:
    """As soon as no step follows that could keep them in registers."""
    kernel = subject_of(open_program(f"matmul:48x64x80x{dtype}", "host{cpu=x86-64-v3}")).kernel
    s = schedule(kernel, X86_64_V3)
    ii, jj = _tile(s, 2, 16)
    s.unroll(ii)
    with pytest.raises(ScheduleError, match=f"sums of {dtype} are rounded outside of registers"):
        s.data()
    s.vectorize(jj)
    assert not check(s.data(), kernel, X86_64_V3)


FORMS = ["i,k ; k,j -> i,j", "k,i ; j,k -> j,i", "b,i,k ; b,k,j -> b,i,j", "i,k ; j,k -> i,j"]
IMAGES = ["b,2*h+r,w+s,c ; r,s,c,f -> b,h,w,f", "b,c,h+r,w+s ; f,c,r,s -> b,f,h,w", "h+r,c ; r,c -> h,c"]


@pytest.mark.parametrize("target", [X86_64_V4, X86_64_V3, RISCV64], ids=lambda target: target.name)
@pytest.mark.parametrize("seed", range(4))
def test_the_library_is_legal_for_any_extents(target: CpuTarget, seed: int) -> None:
    generator = random.Random(seed)
    extents = [1, 2, 3, 7, 16, 31, 64, 65, 97, 200]
    sizes = {name: generator.choice(extents) for name in "bijkchwf"} | {"r": 3, "s": 2}
    for forms, make in ((FORMS, gemm), (IMAGES, conv)):
        for form in forms:
            kernel = kernel_of(form, sizes)
            s = schedule(kernel, target)
            try:
                make(s, target)
            except ScheduleError as error:
                assert error.primitive == "gemm" and 1 in sizes.values(), (form, sizes)
            assert not nest_reasons(kernel, s.data())
            assert parse_schedule(schedule_mapping(s.data(), kernel), kernel) == s.data()


@pytest.mark.parametrize("extent", [2, 3, 17, 1000])
def test_rows_and_reductions_are_legal(extent: int) -> None:
    for form, make in (("i,j ; j -> i,j", rows), ("i ; i -> i", rows), ("i,j ; j -> i", reduction)):
        kernel = kernel_of(form, {"i": extent, "j": extent + 1}, body=MAXIMUM)
        s = schedule(kernel)
        make(s, X86_64_V4)
        assert not nest_reasons(kernel, s.data())
        assert any(loop.vectorize for loop in s.data().nests[0].nest.loops)


def test_register_tiles_fit_the_registers() -> None:
    for target in (X86_64_V4, X86_64_V3, RISCV64):
        tile = register_tile(target, 32)
        assert tile.rows * tile.vectors + tile.vectors + 1 <= target.vector_registers
        assert tile.rows * tile.vectors >= target.vector_registers // 2
