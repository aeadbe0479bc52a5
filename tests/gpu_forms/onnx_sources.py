"""The forms of ONNX operators, as they are and with dynamic extents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from tests.gpu_forms.cases import Case, Expected, exact_array
from tests.integration.onnx_forms import BF16, F16, F32, Form, together
from tests.integration.test_onnx_numbers import GROUPS, cases

import motet
from motet.artifact.dtypes import DTYPES, spelling
from motet.artifact.reader import Artifact

__all__ = ["GROUPS", "sources"]


def sources(group: str) -> Iterator[OnnxSource]:
    kind, name = group.split("-", 1)
    for form, declared, exact in cases(name):
        if any(array.dtype not in DTYPES.values() for array in (*declared, *form.feeds())):
            continue
        if kind != "onnx" and not any(array.ndim for array in form.feeds()):
            continue
        yield OnnxSource(form, declared, exact, {"onnx": 0, "dynamic": 1, "free": 9}[kind])


@dataclass
class OnnxSource:
    form: Form
    declared: list[np.ndarray]
    exact: list[np.ndarray]
    dynamic: int  # how many extents of each input, the first ones, are dynamic

    @property
    def name(self) -> str:
        return self.form.name

    @property
    def key(self) -> str:
        return str(self.form.version)

    def inputs(self) -> list[np.ndarray]:
        return self.form.feeds()

    def compiled(self, others: Sequence[OnnxSource], target: str | None) -> Artifact:
        every = [self, *others]
        if not self.dynamic:
            model = together([one.form for one in every], [one.declared for one in every])
        else:
            model = together([one.form for one in every], [[] for _ in every])
            for value in model.graph.input:
                if self.dynamic == 1 or value.name.endswith("_x0"):  # weights have known extents
                    _make_dynamic(value, self.dynamic)
        return motet.compile(model, devices=target, cache=False)

    def case(self, group: str) -> Case:
        return Case(group, self.name, [self._expected(*pair) for pair in zip(self.declared, self.exact, strict=True)])

    def _expected(self, declared: np.ndarray, exact: np.ndarray) -> Expected:
        dtype = spelling(declared.dtype)
        # as `onnx_forms.tolerance` has it
        kind = declared.dtype
        relative = {F16: 2.0**-9, BF16: 2.0**-6}.get(
            kind, self.form.relative if kind == F32 else 1e-12 + self.form.relative * 1e-6)
        tiny = {F16: 2.0**-23, BF16: 1e-38, F32: 1e-37}.get(kind, 1e-300)
        return Expected(dtype, exact_array(exact, dtype), relative, tiny, self.form.mixed)


def _make_dynamic(value: onnx.ValueInfoProto, count: int) -> None:
    """The first extents of an input dynamic; those of one form that are equal have one name."""
    form = value.name.split("_")[0]
    for dim in value.type.tensor_type.shape.dim[:count]:
        dim.dim_param = f"n{form}_{dim.dim_value}"
