"""Forms of ONNX operators against ONNX's reference in float64, within a few units of the last place.

A form is right, or refused; what is refused is counted, so that none is lost unseen. None ends the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from tests.integration import onnx_forms, onnx_more_forms
from tests.integration.onnx_forms import Form, faults, together

import motet
from motet.errors import MotetError, WorkerCrash

_AT_ONCE = 12  # forms in one model
_QUICK = 61  # of as many forms the quick test takes one
GROUPS: dict[str, Callable[[], Iterator[Form]]] = {
    "unary": onnx_forms.unary, "binary": onnx_forms.binary, "casts": onnx_forms.casts,
    "reductions": onnx_forms.reductions, "norms": onnx_forms.norms, "pools": onnx_forms.pools,
    "products": onnx_forms.products, "moves": onnx_more_forms.moves, "resamples": onnx_more_forms.resamples,
    "quantised": onnx_more_forms.quantised, "recurrent": onnx_more_forms.recurrent, "attends": onnx_more_forms.attends,
}  # fmt: skip
# At least as many forms of each group are calculated; the others are refused, or ONNX's own reference cannot run them.
CALCULATED = {
    "unary": 221, "binary": 260, "casts": 195, "reductions": 364, "norms": 117, "pools": 148, "products": 231,
    "moves": 308, "resamples": 250, "quantised": 44, "recurrent": 63, "attends": 66,
}  # fmt: skip
Case = tuple[Form, list[np.ndarray], list[np.ndarray]]


def cases(group: str) -> list[Case]:
    """The forms that the reference can run, with what their results are declared as and what they should be."""
    found: list[Case] = []
    for form in GROUPS[group]():
        try:
            found.append((form, *form.reference()))
        except (ValueError, RuntimeError, TypeError, NotImplementedError, IndexError, AttributeError, KeyError):
            continue  # ONNX's reference does not know the form
    return found


def wrong(found: Sequence[Case]) -> tuple[list[str], int]:
    """What is wrong with the results, by form, and how many were calculated: forms are compiled together, and by
    halves where one of them is refused."""
    if not found:
        return [], 0
    feeds = [array for form, _, _ in found for array in form.feeds()]
    try:
        model = together([form for form, _, _ in found], [declared for _, declared, _ in found])
        results = motet.load(motet.compile(model, cache=False))(*feeds)
    except MotetError as error:
        if len(found) == 1:
            return [f"{found[0][0].name}: {error}"] if isinstance(error, WorkerCrash) else [], 0
        halves = [wrong(found[: len(found) // 2]), wrong(found[len(found) // 2 :])]
        return halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]
    given = [np.asarray(a) for a in (results if isinstance(results, (tuple, list)) else [results])]
    texts: list[str] = []
    for form, declared, exact in found:
        mine, given = given[: len(declared)], given[len(declared) :]
        what = faults(form, mine, declared, exact)
        texts += [f"{form.name}: {what}"] if what else []
    return texts, len(found)


def bundles(found: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases of one operator set, `_AT_ONCE` at a time."""
    by_version: dict[int, list[Case]] = {}
    for case in found:
        by_version.setdefault(case[0].version, []).append(case)
    for alike in by_version.values():
        for start in range(0, len(alike), _AT_ONCE):
            yield alike[start : start + _AT_ONCE]


def check(found: Sequence[Case]) -> int:
    texts: list[str] = []
    calculated = 0
    for bundle in bundles(found):
        more, count = wrong(bundle)
        texts += more
        calculated += count
    assert not texts, "\n".join(texts)
    return calculated


@pytest.mark.parametrize("group", GROUPS)
def test_some_forms_are_calculated_right(group: str) -> None:
    assert check(cases(group)[5::_QUICK]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_forms_are_calculated_right_or_refused(group: str) -> None:
    assert check(cases(group)) >= CALCULATED[group]
