"""Sequences of the transform dialect: schedules of the operations that they match, against numpy in f64."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

import motet
from motet.artifact.kernel_schedules import SCHEDULES
from motet.errors import CompileError
from motet.runtime import load

pytest.importorskip("yaml")

ANY = "!transform.any_op"


def program(steps: str, m: int = 48, n: int = 64, k: int = 80, nested: bool = False) -> str:
    """A product with a sequence, which is in a module of its own if `nested`."""
    a, b, c = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    sequence = f"transform.named_sequence @__transform_main(%root: {ANY}) {{\n{steps}\n transform.yield\n}}"
    if nested:
        sequence = f"module attributes {{transform.with_named_sequence}} {{\n{sequence}\n}}"
    return f"""module attributes {{transform.with_named_sequence}} {{
func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %0 = linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  return %0 : {c}
}}
{sequence}
}}
"""


def match(name: str = "linalg.matmul", result: str = "%m") -> str:
    return f'{result} = transform.structured.match ops{{["{name}"]}} in %root : ({ANY}) -> {ANY}\n'


def tile(sizes: list[int], given: str = "%m", result: str = "%t", kind: str = "for", more: str = "") -> str:
    loops = sum(size != 0 for size in sizes) if kind == "for" else 1
    results = f"{result}, {result}_l:{loops}" if loops else result
    kinds = ", ".join([ANY] * (1 + loops))
    step = f"transform.structured.tile_using_{kind} {given} tile_sizes {sizes} {more}"
    return f"{results} = {step} : ({ANY}) -> ({kinds})\n"


def unroll(loop: str, factor: int) -> str:
    return f"transform.loop.unroll {loop} {{factor = {factor} : i64}} : {ANY}\n"


VECTORS = f"transform.structured.vectorize %t : {ANY}\n"


def run(text: str, m: int = 48, n: int = 64, k: int = 80) -> tuple[dict[str, Any], float]:
    """The schedule of the only kernel, and the greatest error against numpy."""
    rng = np.random.default_rng(m + n + k)
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    artifact = motet.compile(text, devices="host{cpu=x86-64-v3}")
    with load(artifact) as session:
        result = np.asarray(session(a, b, c), np.float64)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + c
    (found,) = json.loads(bytes(artifact.member(SCHEDULES)))["kernels"]
    return found["schedule"], float(np.abs(result - wanted).max())


def labels(schedule: dict[str, Any]) -> list[str]:
    """The loops as `i`, `j#16~` (vectors), `i#4*` (unrolled), `i!` (tasks)."""
    assert schedule["class"] == "nest"
    return [
        loop["dim"] + (f"#{loop['tile']}" if loop.get("tile") else "")
        + "!" * loop.get("parallel", False) + "~" * loop.get("vectorize", False) + "*" * ("unroll" in loop)
        for loop in schedule["nests"][0]["nest"]["loops"]
    ]


@pytest.mark.parametrize(("steps", "wanted"), [
    (match() + tile([4, 16]) + VECTORS, "i j k i#4* j#16~"),
    (match() + tile([4, 16, 0], more="interchange = [1, 0]") + VECTORS, "j i k i#4* j#16~"),
    (match() + tile([8], result="%f", kind="forall") + tile([2, 8], "%f") + VECTORS, "i! i#8 j k i#2* j#8~"),
    (match() + tile([0, 0, 16]) + unroll("%t_l", 2), "k* i j k#16"),
    (match() + f"%i = transform.structured.interchange %m iterator_interchange = [0, 2, 1] : ({ANY}) -> {ANY}",
     "i k j"),
    (match() + tile([1, 8]) + VECTORS, "i j k j#8~"),
])
@pytest.mark.parametrize("extents", [(48, 64, 80), (7, 33, 19)])
@pytest.mark.parametrize("nested", [False, True], ids=["beside", "nested"])
def test_a_sequence_is_a_schedule(steps: str, wanted: str, extents: tuple[int, int, int], nested: bool) -> None:
    schedule, error = run(program(steps, *extents, nested=nested), *extents)
    assert " ".join(labels(schedule)) == wanted
    assert error < 1e-4


def test_a_module_of_sequences_next_to_that_of_the_program_is_followed() -> None:
    text = program(match() + tile([4, 16]) + VECTORS, nested=True).replace("\nmodule", "\n}\nmodule", 1)
    text = f"module @program {{{text.removeprefix('module attributes {transform.with_named_sequence} {')}"
    text = text.rstrip().removesuffix("}")
    schedule, error = run(text)
    assert " ".join(labels(schedule)) == "i j k i#4* j#16~" and error < 1e-4


def test_a_sequence_of_another_name_is_refused_with_the_name_that_is_followed() -> None:
    says = r"named_sequence: 0 sequences @__transform_main; expected one, with the steps of @mine"
    with pytest.raises(CompileError, match=says):
        motet.compile(program(match()).replace("__transform_main", "mine"), devices="host{cpu=x86-64-v3}")


REFUSED = [
    (match() + f"%p = transform.structured.pad %m {{padding_values = [0.0 : f32]}} : ({ANY}) -> {ANY}", None),
    (match() + tile([4]) + "transform.print %t : " + ANY, "transform.print: it is no primitive of schedules; "),
    (match("linalg.conv_2d"), "match: the program has no linalg.conv_2d; expected one of linalg.matmul"),
    (match() + tile([4]) + tile([4], result="%u"), None),
    (match() + tile([4, 4, 4, 4]), "tile_using_for: sizes [4, 4, 4, 4] of 3 dimensions"),
    (match() + tile([4], more="interchange = [2]"), "interchange [2] is no order of 1 dimensions"),
    (match() + tile([4]) + tile([8], "%t", "%u"), "loop.schedule: tile of i#8: the tile outside has 4 elements"),
    (match() + tile([0, 0, 8], kind="forall"), "loop.schedule: parallelize of k: tasks would race"),
    (match() + f"%i = transform.structured.interchange %m iterator_interchange = [0, 1] : ({ANY}) -> {ANY}", None),
    (match() + tile([4]) + VECTORS + "transform.loop.unroll %m {factor = 2 : i64} : " + ANY, None),
]


@pytest.mark.parametrize(("steps", "says"), REFUSED, ids=range(len(REFUSED)))
def test_other_steps_are_refused_at_their_place(steps: str, says: str | None) -> None:
    with pytest.raises(CompileError) as caught:
        motet.compile(program(steps), devices="host{cpu=x86-64-v3}")
    assert says is None or says in str(caught.value)
    assert str(caught.value).startswith("<string>:") and "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_compute_what_numpy_does_or_say_why_not(seed: int) -> None:
    rng = random.Random(seed)
    extents = tuple(rng.choice((1, 2, 7, 16, 17, 33)) for _ in range(3))
    given, steps = "%m", match()
    for number in range(rng.randint(1, 3)):
        kind = "forall" if number == 0 and rng.random() < 0.4 else "for"
        sizes = [rng.choice((0, 1, 3, 4, 8, 32)) for _ in range(rng.randint(1, 3))]
        if any(sizes):
            steps += tile(sizes, given, f"%t{number}", kind)
            given = f"%t{number}"
    if rng.random() < 0.7:
        steps += f"transform.structured.vectorize {given} : {ANY}\n"
    try:
        error = run(program(steps, *extents), *extents)[1]
    except CompileError as refusal:
        assert "expected" in str(refusal), steps
    else:
        assert error < 1e-4, steps
