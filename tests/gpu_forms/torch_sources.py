"""The forms of PyTorch's operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
from tests.gpu_forms.cases import Case, Expected, exact_array
from tests.integration.test_torch_numbers import GROUPS, Together, forms
from tests.integration.torch_forms import TorchForm

import motet
from motet.artifact.dtypes import DTYPES, spelling
from motet.artifact.reader import Artifact

__all__ = ["GROUPS", "sources"]


def sources(group: str) -> Iterator[TorchSource]:
    for form in forms(group.split("-", 1)[1]):
        plain, exact = form.expected()
        try:
            declared = [_array(one) for one in plain]
            inputs = [_array(one) for one in form.inputs]
        except TypeError:
            continue
        if all(array.dtype in DTYPES.values() for array in (*declared, *inputs)):
            yield TorchSource(form, inputs, declared, [_array(one) for one in exact])


@dataclass
class TorchSource:
    form: TorchForm
    arrays: list[np.ndarray]
    declared: list[np.ndarray]
    exact: list[np.ndarray]
    key: str = ""

    @property
    def name(self) -> str:
        return self.form.name

    def inputs(self) -> list[np.ndarray]:
        return self.arrays

    def compiled(self, others: Sequence[TorchSource], target: str | None) -> Artifact:
        every = [self.form, *(one.form for one in others)]
        inputs = [tensor for form in every for tensor in form.inputs]
        return motet.compile(Together(every).eval(), inputs=inputs, devices=target, cache=False)

    def case(self, group: str) -> Case:
        return Case(group, self.name, [self._expected(*pair) for pair in zip(self.declared, self.exact, strict=True)])

    def _expected(self, declared: np.ndarray, exact: np.ndarray) -> Expected:
        dtype = spelling(declared.dtype)
        # as `torch_forms.faults` has it
        relative = {"f16": 2.0**-9, "bf16": 2.0**-6, "f64": 1e-12}.get(dtype, self.form.relative)
        tiny = {"f16": 2.0**-23, "f64": 1e-300}.get(dtype, 1e-37)
        return Expected(dtype, exact_array(exact, dtype), relative, tiny, self.form.mixed)


def _array(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
