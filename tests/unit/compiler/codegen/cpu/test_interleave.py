"""Results put together from tensors whose elements alternate along rows, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.artifact.kernel_schedules import schedules_of


def program(rows: int, wide: int, step: int, turned: bool) -> tuple[str, list[tuple[int, int]]]:
    """Tensors of which each holds every `step`-th column of a result, its axes in another order if `turned`."""
    counts = [(wide - phase + step - 1) // step for phase in range(step)]
    shapes = [(count, rows) if turned else (rows, count) for count in counts]
    kinds = [f"tensor<{a}x{b}xf32>" for a, b in shapes]
    whole, lines, before = f"tensor<{rows}x{wide}xf32>", list[str](), "%e"
    for phase, (count, kind) in enumerate(zip(counts, kinds, strict=True)):
        part, flat = f"%p{phase}", f"tensor<{rows}x{count}xf32>"
        if turned:
            lines += [f"%t{phase} = tensor.empty() : {flat}", f"%u{phase} = linalg.transpose ins({part} : {kind}) "
                      f"outs(%t{phase} : {flat}) permutation = [1, 0]"]
            part = f"%u{phase}"
        lines.append(f"%r{phase} = tensor.insert_slice {part} into {before}[0, {phase}] [{rows}, {count}] [1, {step}] "
                     f": {flat} into {whole}")
        before = f"%r{phase}"
    arguments = ", ".join(f"%p{phase}: {kind}" for phase, kind in enumerate(kinds))
    return (f"func.func @main({arguments}) -> {whole} {{\n%e = tensor.empty() : {whole}\n" + "\n".join(lines)
            + f"\nreturn {before} : {whole}\n}}"), shapes  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "wide", "step"), [(5, 33, 2), (9, 34, 2), (8, 50, 3), (17, 49, 3), (16, 51, 3)])
def test_columns_alternate(rows: int, wide: int, step: int, turned: bool) -> None:
    text, shapes = program(rows, wide, step, turned)
    numbers = np.random.default_rng(rows * wide)
    parts = [numbers.standard_normal(shape).astype(np.float32) for shape in shapes]
    artifact = motet.compile(text, cache=False)
    assert {each.schedule["class"] for each in schedules_of(artifact)} == {"interleave"}
    expected = np.empty((rows, wide), np.float32)
    for phase, part in enumerate(parts):
        expected[:, phase::step] = part.T if turned else part
    with motet.load(artifact) as session:
        np.testing.assert_array_equal(session(*parts), expected)
