"""Operators of PyTorch against PyTorch in float64, within a few units of the last place; each is right, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import motet

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
from tests.integration import torch_forms  # noqa: E402
from tests.integration.bundled_forms import bundles, check  # noqa: E402
from tests.integration.torch_forms import TorchForm, faults  # noqa: E402

_QUICK = 83  # of as many forms the quick test takes one
GROUPS = {group.__name__: group for group in torch_forms.GROUPS}
# At least as many forms of each group are calculated; the others are refused, or torch itself cannot run them.
CALCULATED = {
    "unary": 342, "binary": 282, "reductions": 478, "norms": 53, "losses": 90, "pools": 231, "products": 132,
    "moves": 87, "modules": 39,
}  # fmt: skip


class Together(torch.nn.Module):
    """The results of several forms, one after the other."""

    def __init__(self, forms: Sequence[TorchForm]) -> None:
        super().__init__()
        self.forms = forms
        self.parts = torch.nn.ModuleList([f.function for f in forms if isinstance(f.function, torch.nn.Module)])

    def forward(self, *inputs: Any) -> Any:
        found: list[Any] = []
        for form in self.forms:
            found += torch_forms.results_of(form.function(*inputs[: len(form.inputs)]))
            inputs = inputs[len(form.inputs) :]
        return tuple(found)


def forms(group: str) -> list[TorchForm]:
    """The forms that torch can run."""
    found: list[TorchForm] = []
    for form in GROUPS[group]():
        try:
            form.expected()
        except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError):
            continue
        found.append(form)
    return found


def wrong(found: Sequence[TorchForm]) -> list[str]:
    """What is wrong with the results, by form, all compiled together. Raises MotetError where one is refused."""
    inputs = [tensor for form in found for tensor in form.inputs]
    session = motet.load(motet.compile(Together(found).eval(), inputs=inputs, cache=False))
    results = session(*inputs)
    given = list(results) if isinstance(results, (tuple, list)) else [results]
    texts: list[str] = []
    for form in found:
        count = len(form.expected()[0])
        mine, given = given[:count], given[count:]
        what = faults(form, mine)
        texts += [f"{form.name}: {what}"] if what else []
    return texts


def calculated(found: Sequence[TorchForm]) -> int:
    return check(bundles(found), wrong, lambda form: form.name)


@pytest.mark.parametrize("group", GROUPS)
def test_some_operators_are_calculated_right(group: str) -> None:
    assert calculated(forms(group)[3::_QUICK]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_operators_are_calculated_right_or_refused(group: str) -> None:
    assert calculated(forms(group)) >= CALCULATED[group]
