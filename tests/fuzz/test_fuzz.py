"""Random programs of fixed seeds are right or refused; and the fuzzer itself finds what is wrong."""

from __future__ import annotations

import mmap
import resource
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from tests.fuzz.campaign import reproduce
from tests.fuzz.compiling import Options, compile_program
from tests.fuzz.dtypes import DTYPES, FLOATS
from tests.fuzz.graph import Graph, Input, Node, from_json, show, to_json
from tests.fuzz.judge import misses
from tests.fuzz.kinds import kind_module, kinds
from tests.fuzz.kinds.attempts import judged
from tests.fuzz.known import KNOWN
from tests.fuzz.operators import MEANINGS
from tests.fuzz.parent import Child
from tests.fuzz.plan import BATCH, program_of
from tests.fuzz.records import FAILURES, Tally, reason
from tests.fuzz.tracked import add, cast, contract, exact, multiply, step
from tests.fuzz.trial import Outcome, try_programs

from motet.errors import CompileError, WorkerCrash

# Batches of every kind, of which the tests of every day take 200 programs: those with few refusals, after each of which
# the others are compiled again.
QUICK = (0, 1, 2, 5, 8, 11, 14, 19, 13)
PROGRAMS = 200
OTHERS = 8  # programs of another kind at once
HALVES = [0, pytest.param(1, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    made = Child(sorted(KNOWN))
    yield made
    made.close()


def tried(child: Child, seeds: range, source: str = "") -> Tally:
    tally = Tally()
    findings = child.try_seeds(seeds, source)
    tally.add(findings)
    failures = [f"{reproduce(f)}: {f.kind}: {f.text}" for f in findings if f.kind in FAILURES]
    assert not failures, "\n".join([*failures, tally.show()])
    assert tally.programs == len(seeds)
    assert source or tally.calls > 3 * len(seeds)
    return tally


@pytest.mark.parametrize("number", range(len(QUICK)))
def test_random_programs_are_right_or_refused(child: Child, number: int) -> None:
    start = QUICK[number] * BATCH
    tally = tried(child, range(start, start + min(BATCH, PROGRAMS - number * BATCH)))
    assert tally.refusals.total() < BATCH // 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(125))
def test_many_random_programs_are_right_or_refused(child: Child, part: int) -> None:
    start = (1000 + part) * BATCH
    tried(child, range(start, start + BATCH))


@pytest.mark.every  # each kind has faults of its own
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", kinds())
def test_random_programs_of_other_kinds_are_right_or_refused(child: Child, kind: str, half: int) -> None:
    tried(child, range(half, OTHERS * (4 if kind == "hostile" else 1), len(HALVES)), kind)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 26))
@pytest.mark.parametrize("kind", kinds())
def test_many_random_programs_of_other_kinds_are_right_or_refused(child: Child, kind: str, part: int) -> None:
    tried(child, range(part * OTHERS, (part + 1) * OTHERS), kind)


# -- the fuzzer itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(0, 40 * BATCH, BATCH))
def test_a_seed_is_always_the_same_program_and_survives_a_file(seed: int) -> None:
    graph = program_of(seed)
    assert show(graph) == show(program_of(seed)) == show(from_json(to_json(graph)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_hold_for_numbers_rounded_after_every_operation(dtype: str) -> None:
    numbers = np.random.default_rng(7)
    kind = DTYPES[dtype]
    a, b = (numbers.uniform(-2, 2, shape).astype(kind) for shape in ((9, 31), (31, 5)))
    product = contract(exact(a, dtype), exact(b, dtype), np.matmul, 31)
    wanted = multiply(add(product, exact(b[:1], dtype)), exact(b[1:2], dtype))
    found = np.zeros((9, 5), kind)
    for k in range(31):
        found = (found + (a[:, k : k + 1] * b[k : k + 1]).astype(kind)).astype(kind)
    found = ((found + b[:1]).astype(kind) * b[1:2]).astype(kind)
    assert not misses(found, wanted).any()
    assert misses((found.astype(np.float64) + 40 * wanted.error.max()).astype(np.float64), wanted).any()


def test_bounds_hold_for_products_that_are_each_rounded_to_the_smallest_number() -> None:
    smallest = exact(np.full((1, 8), 1e-45, np.float32), "f32")
    halves = exact(np.full((8, 1), 0.5 + 2**-20, np.float32), "f32")
    wanted = contract(smallest, halves, np.matmul, 8)
    found = np.float32(1e-45) * np.float32(0.5 + 2**-20) * np.float32(8)  # 8 products, each rounded up
    assert not misses(np.full((1, 1), found, np.float32), wanted).any()
    assert misses(np.full((1, 1), 3 * found, np.float32), wanted).all()
    nothing = contract(smallest, exact(np.zeros((8, 1), np.float32), "f32"), np.matmul, 8)
    assert misses(np.full((1, 1), 2.8e-45, np.float32), nothing).all()


def test_whole_numbers_are_exact_and_steps_near_them_undecided() -> None:
    whole = exact(np.array([1.0, 2.0, 3.0], np.float32), "f32")
    assert not multiply(whole, whole).error.any()
    third = multiply(whole, exact(np.array([1 / 3], np.float32), "f32"))
    assert step(third, np.floor, "f32").unknown.tolist() == [False, False, True]


def test_the_mean_of_integers_of_which_one_is_unknown_is_unknown() -> None:
    floats = exact(np.array([[-2.0, -0.5], [4.0, 8.0]], np.float32), "f32")
    found = MEANINGS["ReduceMean"]({"keepdims": 0}, [cast(floats, "u32"), exact(np.array([1]), "i64")])[0]
    assert not misses(np.array([2**31 - 1, 6], np.uint32), found).any()
    assert misses(np.array([0, 7], np.uint32), found).tolist() == [False, True]


@pytest.mark.parametrize(("dtype", "size"), [("f32", 3e38), ("f64", 1.7e308), ("f16", 6e4)])
def test_what_overflows_is_an_infinity_as_a_result_and_unknown_to_its_readers(dtype: str, size: float) -> None:
    large = exact(np.array([size, -size], DTYPES[dtype]), dtype)
    product = multiply(large, exact(np.array([4.0, 4.0], DTYPES[dtype]), dtype))
    assert not misses(np.array([np.inf, -np.inf], DTYPES[dtype]), product).any()
    assert misses(np.array([-np.inf, np.nan], DTYPES[dtype]), product).all()
    assert not misses(np.zeros(2, DTYPES[dtype]), add(product.as_operand(), large)).any()


def test_an_infinity_times_what_may_have_underflowed_is_unknown() -> None:
    tiny = exact(np.array([1e-45, 1e-45], np.float32), "f32")
    product = multiply(tiny, exact(np.array([0.4, 3.0], np.float32), "f32"))
    infinite = multiply(product, exact(np.array([np.inf, np.inf], np.float32), "f32"))
    assert misses(np.array([np.nan, np.nan], np.float32), infinite).tolist() == [False, True]


def test_results_that_are_nan_or_infinite_at_other_places_are_wrong() -> None:
    wanted = exact(np.array([np.nan, np.inf, -np.inf, 1.0], np.float32), "f32")
    assert not misses(np.array([np.nan, np.inf, -np.inf, 1.0], np.float32), wanted).any()
    assert misses(np.array([1.0, -np.inf, np.nan, np.nan], np.float32), wanted).all()


def test_a_refusal_is_grouped_without_names_and_numbers() -> None:
    first = "fuzz: node 'p3_node0': operator OneHot (operator set 18) has no lowering for inputs of int64[], int64[]"
    other = "fuzz: node 'p17_node4': operator OneHot (operator set 21) has no lowering for inputs of float[2]"
    assert reason(first) == reason(other) == "operator OneHot has no lowering"


def largest(op: str = "Max") -> Graph:
    inputs = tuple(Input(f"x{k}", "f32", (3,)) for k in range(2))
    return Graph(0, 21, inputs, {}, (Node(op, ("x0", "x1"), ("v0",)),), ("v0",))


def test_a_program_that_calculates_something_else_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert try_programs([largest()], "onnx", Options(), lambda text: None)[0].kind == "ok"
    monkeypatch.setitem(MEANINGS, "Max", MEANINGS["Min"])
    assert try_programs([largest()], "onnx", Options(), lambda text: None)[0].kind == "wrong"


@pytest.mark.parametrize(("error", "kind"), [
    (CompileError("node 'n': no"), "refused"), (CompileError("two\nlines"), "error"), (KeyError("n"), "error"),
    (WorkerCrash("the compiler died with exit status 1: AttributeError: 'n'", "again"), "crash"),
])  # fmt: skip
def test_a_death_of_the_compiler_is_no_refusal(
    error: Exception, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(*given: object) -> None:
        raise error

    outcome = Outcome()
    with judged(outcome):
        compile()
    assert outcome.kind == kind
    monkeypatch.setattr("tests.fuzz.trial.compile_program", compile)
    assert try_programs([largest()], "onnx", Options(), lambda text: None)[0].kind == kind


def test_the_end_of_a_child_is_a_crash_of_its_program() -> None:
    child = Child()
    try:
        assert child.try_graph({"seed": 0}).kind == "crash"  # which ends the child, for it is no graph
        assert child.try_graph(to_json(largest())).kind == "ok"
    finally:
        child.close()


def test_the_end_of_a_child_is_told_with_what_was_written_before_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    script = "import faulthandler, os; faulthandler.enable(); os.write(2, b'no\\na\\nout of memory\\n'); os.abort()"
    begin = subprocess.Popen
    monkeypatch.setattr("subprocess.Popen", lambda _, **how: begin([sys.executable, "-c", script], **how))
    try:
        said = child.try_graph(to_json(largest()))
        assert said.text.startswith("SIGABRT: a; out of memory; Fatal Python error: Aborted; in: ")
    finally:
        child.close()


def test_a_hostile_model_gets_its_memory_whatever_the_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    monkeypatch.setattr(
        "tests.fuzz.kinds.hostile.compile_program",
        lambda *given: limits.append(resource.getrlimit(resource.RLIMIT_AS)[0]) or compile_program(*given),
    )
    with mmap.mmap(-1, 1 << 30):
        assert kind_module("hostile").attempt(2028208345, lambda text: None).kind == "ok"
        assert limits[0] >= 13 << 30


def test_silence_of_a_child_is_a_hang_of_its_program() -> None:
    child = Child(patience=0.01)
    try:
        assert child.try_graph(to_json(largest())).kind == "hang"
    finally:
        child.close()
