"""Forms of ONNX operators against ONNX's reference in float64, within a few units of the last place.

A form is right, or refused; what is refused is counted, so that none is lost unseen. None ends the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from tests.integration import onnx_edge_forms, onnx_forms, onnx_more_forms
from tests.integration.bundled_forms import bundles, check
from tests.integration.onnx_forms import Form, faults, together

import motet

_QUICK = {"edges": 23}  # of as many forms the quick test takes one
_QUICK_OTHERS = 61
GROUPS: dict[str, Callable[[], Iterator[Form]]] = {
    "unary": onnx_forms.unary, "binary": onnx_forms.binary, "casts": onnx_forms.casts,
    "reductions": onnx_forms.reductions, "norms": onnx_forms.norms, "pools": onnx_forms.pools,
    "products": onnx_forms.products, "moves": onnx_more_forms.moves, "resamples": onnx_more_forms.resamples,
    "quantised": onnx_more_forms.quantised, "recurrent": onnx_more_forms.recurrent, "attends": onnx_more_forms.attends,
    "edges": onnx_edge_forms.edges,
}  # fmt: skip
# At least as many forms of each group are calculated; the others are refused, or ONNX's own reference cannot run them.
CALCULATED = {
    "unary": 221, "binary": 260, "casts": 195, "reductions": 363, "norms": 117, "pools": 148, "products": 231,
    "moves": 308, "resamples": 250, "quantised": 44, "recurrent": 63, "attends": 66, "edges": 451,
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


def wrong(found: Sequence[Case]) -> list[str]:
    """What is wrong with the results, by form, all compiled together. Raises MotetError where one is refused."""
    feeds = [array for form, _, _ in found for array in form.feeds()]
    model = together([form for form, _, _ in found], [declared for _, declared, _ in found])
    results = motet.load(motet.compile(model, cache=False))(*feeds)
    given = [np.asarray(a) for a in (results if isinstance(results, (tuple, list)) else [results])]
    texts: list[str] = []
    for form, declared, exact in found:
        mine, given = given[: len(declared)], given[len(declared) :]
        what = faults(form, mine, declared, exact)
        texts += [f"{form.name}: {what}"] if what else []
    return texts


def calculated(found: Sequence[Case]) -> int:
    """How many of `found` were calculated; bundles are of one operator set each."""
    by_version: dict[int, list[Case]] = {}
    for case in found:
        by_version.setdefault(case[0].version, []).append(case)
    alike = (bundle for cases in by_version.values() for bundle in bundles(cases))
    return check(alike, wrong, lambda case: case[0].name)


@pytest.mark.parametrize("group", GROUPS)
def test_some_forms_are_calculated_right(group: str) -> None:
    assert calculated(cases(group)[5 :: _QUICK.get(group, _QUICK_OTHERS)]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_forms_are_calculated_right_or_refused(group: str) -> None:
    assert calculated(cases(group)) >= CALCULATED[group]
