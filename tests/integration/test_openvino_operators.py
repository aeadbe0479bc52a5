"""OpenVINO's operators, each read from a model and compared with OpenVINO's own result in f32."""

# openvino may not be installed, and has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.integration.bundled_forms import bundles, check

import motet

openvino: Any = pytest.importorskip("openvino", reason="needs OpenVINO: make frameworks")
from tests.integration import openvino_forms  # noqa: E402
from tests.integration.openvino_forms import OpenvinoForm  # noqa: E402

_QUICK = 46  # of as many forms the quick test takes one
GROUPS = {group.__name__: group for group in openvino_forms.GROUPS}
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}


def wrong(found: Sequence[OpenvinoForm]) -> list[str]:
    """What is wrong with the results, by form, all compiled together. Raises MotetError where one is refused."""
    rng = np.random.default_rng(7)
    built = [form.outputs() for form in found]
    inputs = [array for form in found for array in form.inputs(rng)]
    results = [output for outputs, _ in built for output in outputs]
    model = openvino.Model(results, [each for _, given in built for each in given], "forms")
    calculated = openvino.compile_model(model, "CPU", EXACT)(inputs)
    wanted = [calculated[number] for number in range(len(results))]
    session = motet.load(motet.compile(model, cache=False))
    given = session(*inputs)
    mine = list(given) if isinstance(given, (tuple, list)) else [given]
    texts: list[str] = []
    for form, (outputs, _) in zip(found, built, strict=True):
        for number in range(len(outputs)):
            what = _difference(np.asarray(mine.pop(0)), wanted.pop(0))
            texts += [f"{form.name}, result {number}: {what}"] if what else []
    return texts


def _difference(mine: np.ndarray, wanted: np.ndarray) -> str:
    if mine.dtype != wanted.dtype or mine.shape != wanted.shape:
        return f"{mine.dtype}{list(mine.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    one, other = mine.astype(np.float64), wanted.astype(np.float64)
    if np.allclose(one, other, rtol=1e-4, atol=2e-5, equal_nan=True):
        return ""
    return f"differs by {np.nanmax(np.abs(one - other)):.3g}"


def calculated(found: Sequence[OpenvinoForm]) -> int:
    return check(bundles(found), wrong, lambda form: form.name)


def test_some_operators_equal_openvino() -> None:
    found = [form for group in GROUPS.values() for form in group()][5::_QUICK]
    assert calculated(found) == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_operators_equal_openvino(group: str) -> None:
    found = list(GROUPS[group]())
    assert calculated(found) == len(found)
