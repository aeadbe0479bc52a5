"""Random legal schedules of random kernels against numpy in double precision; illegal ones have a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.seeds import examples
from tests.unit.compiler.codegen.cpu.harness import Executable, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, softmax, stage, value
from tests.unit.compiler.codegen.cpu.test_convolution import conv_kernel
from tests.unit.compiler.codegen.cpu.test_convolution import reference as convolution
from tests.unit.compiler.codegen.cpu.test_depthwise import depthwise_kernel
from tests.unit.compiler.codegen.cpu.test_depthwise import reference as depthwise
from tests.unit.compiler.codegen.cpu.windows import NCHW, NHWC, Geometry, multiply_add, random, relu6

from motet.compiler.codegen.cpu.select import CLASSES, check, generate
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.schedule import (
    ContractionSchedule,
    KernelSchedule,
    LoopPhase,
    LoopsSchedule,
    decode_schedule,
    encode_schedule,
)
from motet.compiler.targets.cpu import X86_64_V3, CpuTarget

TARGETS = [native_target(), X86_64_V3]
_PART = 6  # of the random schedules, one of so many in `make test`
NUMBERS = st.one_of(st.integers(1, 9), st.sampled_from([0, 16, 24, 32, 40, 64, 128, 500]))
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "lanes": st.sampled_from([1, 2, 3, 4, 8, 16]), "b_mode": st.sampled_from(["packed", "scratch", "place", "along_k"]),
    "way": st.sampled_from(["tiles", "dots", "pairs"]), "pack_a": st.booleans(), "keeps": st.booleans(),
    "shared": st.booleans(), "in_place": st.booleans(), "depth_block": st.one_of(st.none(), NUMBERS),
}
TOGETHER = [("b_mode", "depth_block"), ("rows", "tile_rows"), ("vectors", "rows")]
UNPACKED: dict[str, Any] = {
    "b_mode": "scratch", "keeps": False, "shared": False, "pack_panels": 1, "pack_steps": 0, "ahead": 0,
}
KEPT = UNPACKED | {"keeps": True, "panels": 1, "depth_block": None}


def drawn(data: st.DataObject, schedule: KernelSchedule) -> KernelSchedule:
    """`schedule` with some other values, legal or not."""
    if isinstance(schedule, LoopsSchedule):
        return drawn_phases(data, schedule)
    names = [(name,) for name in schedule.__struct_fields__ if name not in ("b_mode", "way")]
    names += [(name,) for name in ("b_mode", "way") if hasattr(schedule, name)]
    names += [group for group in TOGETHER if all(hasattr(schedule, name) for name in group)]
    if isinstance(schedule, ContractionSchedule) and data.draw(st.booleans(), "kept or shared"):
        shared = UNPACKED | {"shared": True, "pack_steps": data.draw(NUMBERS), "ahead": data.draw(st.integers(0, 3))}
        schedule = structs.replace(schedule, **data.draw(st.sampled_from([UNPACKED, KEPT, shared])))
    for group in data.draw(st.lists(st.sampled_from(names), max_size=3)):
        schedule = structs.replace(schedule, **{name: data.draw(DRAWN.get(name, NUMBERS), name) for name in group})
    return schedule


def drawn_phases(data: st.DataObject, schedule: LoopsSchedule) -> LoopsSchedule:
    """`schedule` with one phase cut otherwise, in two, or together with the next one."""
    phases = list(schedule.phases)
    number = data.draw(st.integers(0, len(phases) - 1))
    phase = phases[number]
    how = data.draw(st.sampled_from(["lanes", "grain", "strip", "by_rows", "divide", "join"]))
    if how == "divide":
        left = data.draw(st.integers(0, phase.stages))
        parts = [structs.replace(phase, stages=count, by_rows=count > 1) for count in (left, phase.stages - left)]
        phases[number : number + 1] = parts
    elif how == "join" and number + 1 < len(phases):
        stages = phase.stages + phases[number + 1].stages
        phases[number : number + 2] = [structs.replace(phase, stages=stages, by_rows=True)]
    elif how in ("lanes", "grain", "strip", "by_rows"):
        kind = {"strip": st.sampled_from([None, 4, 8, 48, 64, 128, 512]), "by_rows": st.booleans()}.get(how, NUMBERS)
        phases[number] = structs.replace(phase, **{how: data.draw(kind, how)})
    return LoopsSchedule(phases)


def legal_of(data: st.DataObject, found: Kernel, target: CpuTarget) -> KernelSchedule:
    """A legal schedule of some class that takes the kernel, several changes from the chosen one."""
    chosen = [
        schedule for each in CLASSES
        if (match := each.match(found, target)) is not None and (schedule := each.choose(match, target)) is not None
    ]
    schedule = data.draw(st.sampled_from([*chosen[:1] * 3, *chosen]))
    assert not check(schedule, found, target), "the heuristics choose an illegal schedule"
    for _ in range(data.draw(st.integers(1, 12))):
        other = drawn(data, schedule)
        schedule = other if not check(other, found, target) else schedule
    return schedule


def run(data: st.DataObject, found: Kernel, arrays: list[np.ndarray], symbols: dict[str, int] | None = None) -> Any:
    """The result of `found` by a random legal schedule, which goes through JSON values."""
    target = data.draw(st.sampled_from(TARGETS))
    schedule = legal_of(data, found, target)
    code = generate(found, target, decode_schedule(encode_schedule(schedule)))
    assert code is not None and code.schedule == schedule
    (result,) = Executable(found, code, target)(*arrays, symbols=symbols, split=data.draw(st.integers(1, 3)))
    return result


@st.composite
def products(draw: st.DrawFn) -> tuple[Kernel, list[np.ndarray], dict[str, int], np.ndarray]:
    """A product of any layout, of a batch or not, with or without what follows, of known and unknown extents."""
    b, m, n, k = draw(st.integers(1, 3)), *(draw(st.integers(1, most)) for most in (70, 90, 80))
    dtype = draw(st.sampled_from(["f32", "f32", "f64", "i32"]))
    role = draw(st.sampled_from(["argument", "constant"]))
    dynamic = draw(st.sets(st.sampled_from("mnk"))) if role == "argument" else draw(st.sets(st.just("m")))
    sizes = {"m": m, "n": n, "k": k}
    m_, n_, k_ = (name if name in dynamic else size for name, size in sizes.items())
    orders = [draw(st.sampled_from([(0, 1, 2), (0, 2, 1)])) for _ in range(2)]
    clamp = draw(st.booleans()) and dtype != "i32"
    values = [
        value((b, m_, k_), dtype, order=orders[0]), value((b, k_, n_), dtype, role, orders[1]),
        value((b, m_, n_), dtype, "result"), value((b, m_, n_), dtype, "temporary"),
    ]
    first = stage(
        (b, m_, n_, k_), "pppr", [at(0, 4, 0, 1, 3), at(1, 4, 0, 3, 2)], [at(3 if clamp else 2, 4, 0, 1, 2)],
        multiply_add(dtype, dtype), inits=[0 if dtype == "i32" else 0.0],
    )
    stages = [first, stage((b, m_, n_), "ppp", **relu6(3, 2, 3, dtype))] if clamp else [first]
    found = kernel(values if clamp else values[:3], *stages, symbols=sorted(dynamic))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    x, y = random(rng, (b, m, k), dtype), random(rng, (b, k, n), dtype)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    return found, [x, y], {name: sizes[name] for name in dynamic}, np.clip(expected, 0, 6) if clamp else expected


@given(st.data(), products())
@settings(max_examples=examples(150, _PART), deadline=None)
def test_products(data: st.DataObject, product: Any) -> None:
    found, arrays, symbols, expected = product
    tolerance = {"f32": 2e-5, "f64": 1e-12, "i32": 0}[found.values[0].dtype]
    got = run(data, found, arrays, symbols)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max()))


@given(st.data())
@settings(max_examples=examples(60, _PART), deadline=None)
def test_products_of_bytes(data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, most)) for most in (40, 80, 150))
    role = data.draw(st.sampled_from(["argument", "constant"]))
    found = kernel(
        [value((m, k), "i8"), value((k, n), "i8", role, data.draw(st.sampled_from([(0, 1), (1, 0)]))),
         value((m, n), "i32", "result")],
        stage((m, n, k), "ppr", [at(0, 3, 0, 2), at(1, 3, 2, 1)], [at(2, 3, 0, 1)], multiply_add("i8", "i32"),
              inits=[0]),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, y = random(rng, (m, k), "i8"), random(rng, (k, n), "i8")
    np.testing.assert_array_equal(run(data, found, [x, y]), x.astype(np.int64) @ y.astype(np.int64))


@given(st.data())
@settings(max_examples=examples(60, _PART), deadline=None)
def test_products_of_bf16(data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, most)) for most in (70, 80, 150))
    role = data.draw(st.sampled_from(["argument", "constant"]))
    orders = [data.draw(st.sampled_from([(0, 1), (1, 0)])) for _ in range(2)]
    found = kernel(
        [value((m, k), "bf16", order=orders[0]), value((k, n), "bf16", role, orders[1]),
         value((m, n), "f32", "result")],
        stage((m, n, k), "ppr", [at(0, 3, 0, 2), at(1, 3, 2, 1)], [at(2, 3, 0, 1)], multiply_add("bf16", "f32"),
              inits=[0.5]),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, y = random(rng, (m, k), "bf16"), random(rng, (k, n), "bf16")
    expected = x.astype(np.float64) @ y.astype(np.float64) + 0.5
    got = run(data, found, [x, y])
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * max(1, np.abs(expected).max()))


def geometry_of(data: st.DataObject) -> tuple[Geometry, list[int]]:
    """A window, and the extents of an image that it fits."""
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    taps = data.draw(st.sampled_from([(1, 3), (2, 2), (3, 3), (4, 2)]))
    stride, dilation, low, high = pair(1, 2), pair(1, 2), pair(0, 2), pair(0, 2)
    padding = 0.0 if any(low + high) else data.draw(st.sampled_from([0.0, None]))
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    size = [max(1, r - lo - hi) + extra for r, lo, hi, extra in zip(reach, low, high, pair(3, 12), strict=True)]
    return Geometry(taps, stride, dilation, low, high, padding), size


@given(st.data())
@settings(max_examples=examples(100, _PART), deadline=None)
def test_convolutions(data: st.DataObject) -> None:
    geometry, size = geometry_of(data)
    image = (data.draw(st.integers(1, 2)), data.draw(st.sampled_from([1, 3, 7, 16, 19, 33])), *size)
    source, result = (data.draw(st.sampled_from([NCHW, NHWC, NHWC])) for _ in range(2))
    found = conv_kernel(image, data.draw(st.integers(2, 40)), geometry, source=source, result=result)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, w, b = (random(rng, [int(size) for size in each.shape], "f32") for each in found.values[:3])
    expected = convolution(x, w, geometry) + b[:, None, None]
    got = run(data, found, [x, w, b])
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * max(1, np.abs(expected).max()))


@given(st.data())
@settings(max_examples=examples(60, _PART), deadline=None)
def test_depthwise_convolutions(data: st.DataObject) -> None:
    geometry, size = geometry_of(data)
    image = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 70)), *size)
    found = depthwise_kernel(image, geometry)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, w, b = (random(rng, [int(size) for size in each.shape], "f32") for each in found.values[:3])
    expected = depthwise(x, w, b, geometry)
    got = run(data, found, [x, w, b])
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * max(1, np.abs(expected).max()))


@given(st.data())
@settings(max_examples=examples(60, _PART), deadline=None)
def test_rows(data: st.DataObject) -> None:
    shape = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3000))
    dynamic = data.draw(st.booleans())
    found = softmax("n", "m") if dynamic else softmax(*shape)
    x = random(np.random.default_rng(0), shape, "f32")
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    got = run(data, found, [x], {"n": shape[0], "m": shape[1]} if dynamic else None)
    np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("columns", [2, 3, 8])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_short_rows_side_by_side(columns: int, lanes: int) -> None:
    found = softmax(9, columns)
    schedule = LoopsSchedule([LoopPhase(len(found.stages), lanes, 4, by_rows=True)])
    assert not check(schedule, found, X86_64_V3)
    code = generate(found, X86_64_V3, schedule)
    assert code is not None
    x = random(np.random.default_rng(0), (9, columns), "f32")
    wide = np.exp(x.astype(np.float64))
    (got,) = Executable(found, code, X86_64_V3)(x)
    np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=2e-5, atol=1e-7)


@given(st.data())
@settings(max_examples=examples(80, _PART), deadline=None)
def test_movement_and_reductions(data: st.DataObject) -> None:
    """Tensors in other orders, added; and sums of one of their dimensions."""
    shape = tuple(data.draw(st.integers(1, most)) for most in (5, 60, 60))
    orders = [data.draw(st.permutations([0, 1, 2])) for _ in range(3)]
    dtype = data.draw(st.sampled_from(["f32", "f64", "i32", "i8"]))
    kind = "f" if dtype.startswith("f") else "i"
    summed = data.draw(st.sampled_from([None, 0, 1, 2]))
    rest = [d for d in range(3) if d != summed]
    body = [op(f"add{kind}", 0, 1, dtype=dtype)]
    if summed is not None:
        body += [op(f"add{kind}", 3, 2, dtype=dtype)]
    values = [value(shape, dtype, order=order) for order in orders[:2]]
    values.append(value([shape[d] for d in rest], dtype, "result", orders[2] if summed is None else ()))
    found = kernel(values, stage(
        shape, "".join("r" if d == summed else "p" for d in range(3)), [at(0, 3, 0, 1, 2), at(1, 3, 0, 1, 2)],
        [at(2, 3, *rest)], body, inits=[None if summed is None else 0.0 if kind == "f" else 0],
    ))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, y = (random(rng, shape, dtype) for _ in range(2))
    if kind == "i":
        total = x + y
        expected = total if summed is None else total.sum(summed, dtype=total.dtype)
        np.testing.assert_array_equal(run(data, found, [x, y]), expected)
        return
    total = x.astype(np.float64) + y
    expected = total if summed is None else total.sum(summed)
    np.testing.assert_allclose(run(data, found, [x, y]), expected, rtol=1e-5, atol=1e-5)


@given(st.data(), products())
@settings(max_examples=examples(150, _PART), deadline=None)
def test_what_is_refused_has_a_reason_that_names_a_field(data: st.DataObject, product: Any) -> None:
    """And what is not refused makes code: `check` never raises, whatever numbers a schedule has."""
    found, target = product[0], data.draw(st.sampled_from(TARGETS))
    code = generate(found, target)
    assert code is not None and code.schedule is not None
    schedule = code.schedule
    for name in data.draw(st.sets(st.sampled_from(schedule.__struct_fields__), min_size=1)) - {"phases"}:
        number = st.integers(-3, 1 << 40)
        schedule = structs.replace(schedule, **{name: data.draw(DRAWN.get(name, number), name)})
    for reason in check(schedule, found, target):
        assert reason.field.partition("[")[0] in (*schedule.__struct_fields__, "class")
        assert reason.allowed and "expected" in str(reason)


def test_a_class_that_does_not_take_the_kernel_is_a_reason() -> None:
    found = softmax(8, 100)
    matrix = decode_schedule({
        "class": "contraction", "lanes": 8, "rows": 4, "vectors": 2, "tile_rows": 1, "panels": 1, "b_mode": "scratch",
    })
    assert [str(each) for each in check(matrix, found, native_target())] == [
        'class="contraction": expected one of loops, nest, which take this kernel'
    ]


@pytest.mark.parametrize(("field", "given_", "allowed"), [
    ("lanes", 3, "one of 2, 4, 8"), ("rows", 17, "1 to 8 (16 vector registers)"), ("tile_rows", 0, "1 to 9"),
    ("b_mode", "packed", "scratch, place or along_k: the right operand is no constant"),
    ("keeps", True, "false: it needs panels=1 and no depth_block"), ("group", 2, "1 to 1"),
])
def test_reasons_say_what_is_allowed(field: str, given_: Any, allowed: str) -> None:
    found = kernel(
        [value((35, 20)), value((20, 70)), value((35, 70), role="result")],
        stage((35, 70, 20), "ppr", [at(0, 3, 0, 2), at(1, 3, 2, 1)], [at(2, 3, 0, 1)],
              [op("mulf", 0, 1), op("addf", 2, 3)], inits=[0.0]),
    )
    content = {
        "class": "contraction", "lanes": 8, "rows": 4, "vectors": 2, "tile_rows": 2, "panels": 2, "b_mode": "scratch",
    }
    (reason,) = check(decode_schedule(content | {field: given_}), found, X86_64_V3)
    assert (reason.field, reason.value, reason.allowed) == (field, given_, allowed)


@pytest.mark.parametrize(("content", "message"), [
    ({"rows": 4}, "class is missing: expected one of contraction,"),
    ({"class": "tensor"}, "class=tensor: expected one of contraction,"),
    ({"class": "loops", "rows": 4}, "rows: class loops has no such field; expected phases"),
    ({"class": "depthwise", "lanes": "x", "vectors": 1, "pixels": 1, "block": 1, "panels": 1}, "lanes: expected int"),
    (7, "expected"),
])
def test_what_is_no_schedule_is_one_line(content: object, message: str) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*\n).*") as caught:
        decode_schedule(content)
    assert message in str(caught.value)
