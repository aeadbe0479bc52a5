"""Attention as one kernel, by Triton's interpreter, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.codegen.triton.attention_texts import Form, expected, shapes, text
from tests.unit.codegen.triton.building import generate, interpret

from motet.artifact.dtypes import DTYPES


def inputs_of(form: Form, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for i, shape in enumerate(shapes(form)):
        if i == 3 and form.mask in ("bool", "both"):
            mask = generator.random(shape) < 0.7
            mask[..., 0] = True
            found.append(mask)
        else:
            dtype = DTYPES[form.dtype] if i < 3 else np.dtype("f4")
            found.append((generator.standard_normal(shape) * 1.5).astype(dtype))
    return found


def agree(form: Form, inputs: list[np.ndarray] | None = None, which: int = 0) -> None:
    inputs = inputs_of(form) if inputs is None else inputs
    made = generate(text(form))
    assert made.kinds == ["attention"]
    (got,) = interpret(made, inputs, which)
    wanted = expected(form, inputs)
    tolerance = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}[form.dtype]
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=tolerance, atol=tolerance)


FORMS = {
    "plain": Form(),
    "named": Form(named=True),
    "collapsed": Form(collapsed=True, queries=5, keys=19),
    "swapped": Form(swapped=True, queries=33, keys=70, heads=3),
    "swapped and collapsed": Form(swapped=True, collapsed=True, queries=18, keys=66),
    "one query": Form(queries=1, keys=37),
    "one head": Form(heads=1, batch=1, queries=20, keys=9),
    "grouped": Form(groups=3, queries=9, keys=40),
    "grouped and collapsed": Form(groups=2, collapsed=True, swapped=True, queries=70, keys=40),
    "wide": Form(depth=80, width=96, queries=17, keys=33),
    "narrow values": Form(depth=16, width=24, queries=17, keys=33),
    "causal": Form(mask="causal", queries=70, keys=70, hidden="0xFF800000"),
    "causal with a large number": Form(mask="causal", queries=37, keys=37, hidden="-3.4028234663852886E+38"),
    "causal with a past": Form(mask="causal", queries=5, keys=70, past=65),
    "causal and grouped": Form(mask="causal", groups=2, queries=8, keys=40, past=32),
    "added mask": Form(mask="float", queries=34, keys=71),
    "added row": Form(mask="rows", queries=34, keys=71, collapsed=True),
    "truth": Form(mask="bool", queries=34, keys=71),
    "truth and causal": Form(mask="both", queries=71, keys=71),
    "decoding": Form(queries=1, keys=1500, heads=3, depth=32, width=32),
    "decoding in groups": Form(groups=4, queries=1, keys=1400, depth=24, width=40, batch=1),
    "decoding some": Form(groups=2, queries=3, keys=999, mask="causal", past=996, swapped=True),
    "decoding masked": Form(groups=2, queries=1, keys=999, mask="rows"),
    "dynamic": Form(dynamic=True, queries=21, keys=45),
    "dynamic and collapsed": Form(dynamic=True, collapsed=True, swapped=True, queries=21, keys=45),
    "dynamic and causal": Form(dynamic=True, mask="causal", queries=45, keys=45),
    "dynamic and masked": Form(dynamic=True, mask="rows", queries=20, keys=37),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_spelling_agrees_with_numpy(name: str) -> None:
    agree(FORMS[name])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["plain", "swapped and collapsed", "causal", "added mask", "grouped", "dynamic"])
def test_short_floats_agree_with_numpy(name: str, dtype: str) -> None:
    form = replace(FORMS[name], dtype=dtype, depth=64, width=64)
    for which in range(1 if form.dynamic else 2):  # extents of other forms are not known to the schedule
        agree(form, which=which)


def test_rows_that_see_no_key_are_not_numbers() -> None:
    form = Form(mask="bool", queries=20, keys=40)
    inputs = inputs_of(form)
    inputs[3][3] = False
    agree(form, inputs)


def test_masks_with_large_numbers_leave_rows_alike() -> None:
    form = Form(mask="rows", queries=20, keys=40)
    inputs = inputs_of(form)
    inputs[3][0] = np.finfo(np.float32).min
    agree(form, inputs)


def test_infinities_and_numbers_that_are_none_stay_in_their_rows() -> None:
    form = Form(queries=20, keys=40)
    inputs = inputs_of(form)
    inputs[0][0, 0, 3, 0] = np.nan
    inputs[0][1, 1, 5, 1] = np.inf
    inputs[2][0, 1, 7, 2] = np.inf
    agree(form, inputs)
