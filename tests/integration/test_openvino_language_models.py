"""Parts of language models in OpenVINO's pipeline, against OpenVINO: caches that grow, and mixtures of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ov = pytest.importorskip("openvino", reason="needs OpenVINO: make intel")
pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

from openvino import opset12, opset15  # noqa: E402
from openvino import opset13 as ops  # noqa: E402

import motet.openvino  # noqa: E402

Array = np.ndarray[Any, Any]
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


def f(value: float) -> Any:
    return ops.constant(np.float32(value))


def i(value: int) -> Any:
    return ops.constant(np.int64(value))


def axes(*values: int) -> Any:
    return ops.constant(np.array(values, np.int64))


class Weights:
    """Random constants."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> Any:
        return ops.constant((self.chance.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))


def close(found: Array, wanted: Array, what: str) -> None:
    assert found.shape == wanted.shape, what
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=what)


# -- caches ---------------------------------------------------------------------------------------


class Decoder:
    """A layer of attention over a cache of keys and values: `beams` reorders the cache, `window` keeps that many of its
    last positions, `fused` uses one operation for attention. `axis` is the one that grows, before or behind the heads.
    """

    def __init__(self, beams: bool = False, fused: bool = False, window: int = 0, axis: int = 2,
                 heads: int = 3, size: int = 5) -> None:  # fmt: skip
        self.width, self.beams = heads * size, beams
        w, width = Weights(3), heads * size
        x = ops.parameter([-1, -1, width], np.float32, name="x")
        order = ops.parameter([-1], np.int32, name="beam_idx")
        batch = ops.gather(ops.shape_of(x), axes(0), i(0))
        swap = axes(0, 2, 1, 3)
        sinks: list[Any] = []

        def divided(value: Any) -> Any:
            rows = ops.reshape(value, axes(0, 0, heads, size), True)
            return rows if axis == 1 else ops.transpose(rows, swap)

        def grown(name: str, new: Any) -> Any:
            shape = [-1, -1, heads, size] if axis == 1 else [-1, heads, -1, size]
            extents = [batch, *(axes(max(extent, 0)) for extent in shape[1:])]
            begin = ops.broadcast(f(0), ops.concat(extents, 0))
            past = ops.read_value(begin, name, ov.Type.f32, ov.PartialShape(shape))
            if beams:
                past = ops.gather(past, order, i(0))
            joined = ops.concat([past, new], axis)
            if window:
                joined = ops.slice(joined, axes(-window), axes(2**31 - 1), axes(1), axes(axis))
            sinks.append(ops.assign(joined, name))
            return joined if axis == 2 else ops.transpose(joined, swap)

        query = divided(ops.matmul(x, w(width, width), False, True))
        query = query if axis == 2 else ops.transpose(query, swap)
        keys, values = (grown(name, divided(ops.matmul(x, w(width, width), False, True))) for name in ("k", "v"))
        if fused:
            seen = ops.scaled_dot_product_attention(query, keys, values)
        else:
            scores = ops.multiply(ops.matmul(query, keys, False, True), f(size**-0.5))
            seen = ops.matmul(ops.softmax(scores, -1), values, False, False)
        joined = ops.reshape(ops.transpose(seen, swap), axes(0, 0, width), True)
        hidden = ops.add(x, ops.matmul(joined, w(width, width), False, True))
        hidden = ops.add(hidden, ops.matmul(ops.gelu(hidden, "erf"), w(width, width), False, True))
        self.model = ov.Model([ops.result(hidden)], sinks, [x, order] if beams else [x], "decoder")

    def inputs(self, batch: int, steps: int, seed: int) -> list[Array]:
        chance = np.random.default_rng(seed)
        x = chance.standard_normal((batch, steps, self.width)).astype(np.float32)
        return [x, chance.permutation(batch).astype(np.int32)] if self.beams else [x]


@pytest.mark.parametrize("form", [
    {}, {"beams": True}, {"fused": True}, {"beams": True, "fused": True}, {"window": 4},
    {"axis": 1, "heads": 2, "size": 7}, {"axis": 1, "beams": True, "window": 3},
], ids=str)  # fmt: skip
def test_caches_grow_and_are_reset(form: dict[str, Any], tmp_path: Path) -> None:
    given = Decoder(**form)
    compiled = motet.openvino.compile_model(given.model, "CPU", "f32", config=EXACT)
    assert sum(part.types["MatMul"] for part in compiled.report.replaced) >= 5
    assert {left.type for left in compiled.report.left if "a state" in left.reason} == {"ReadValue", "Assign"}
    compiled.save(tmp_path / "decoder.xml")
    saved = motet.openvino.compile_model(tmp_path / "decoder.xml", "CPU", "f32", config=EXACT)
    alone = ov.Core().compile_model(given.model, "CPU", EXACT)
    wanted, *found = (each.create_infer_request() for each in (alone, compiled, saved))
    for sequence, batch in enumerate((2, 1, 3)):
        for step, count in enumerate((5, 1, 1, 3, 1)):
            inputs = given.inputs(batch, count, 10 * sequence + step)
            if given.beams and not step:
                inputs[1] = np.arange(batch, dtype=np.int32)
            wanted.infer(inputs)
            for request in found:
                request.infer(inputs)
                where = f"sequence {sequence}, step {step}"
                close(request.output_tensors[0].data, wanted.output_tensors[0].data, where)
                theirs = {state.name: state.state.data for state in wanted.query_state()}
                assert len(theirs) == len(request.query_state())
                for state in request.query_state():
                    close(state.state.data, theirs[state.name], f"{where}, {state.name}")
        for request in (wanted, *found):
            if sequence:
                request.reset_state()
            else:
                for state in request.query_state():
                    state.reset()


# -- mixtures of experts --------------------------------------------------------------------------


class Experts:
    """`count` gated perceptrons, of which each row of x takes the best `chosen`."""

    def __init__(self, form: str, width: int, inner: int, count: int, chosen: int) -> None:
        self.w, self.width, self.inner, self.count = Weights(count), width, inner, count
        self.x = ops.parameter([-1, width], np.float32, name="x")
        scores = ops.softmax(ops.matmul(self.x, self.w(count, width), False, True), -1)
        best = ops.topk(scores, i(chosen), -1, "max", "value", index_element_type="i64")
        self.places = best.output(1)
        self.shares = ops.divide(best.output(0), ops.reduce_sum(best.output(0), axes(-1), True))
        self.model = ov.Model([ops.result(getattr(self, form)())], [self.x], form)

    def expert(self, rows: Any) -> Any:
        gate, up = (ops.matmul(rows, self.w(self.inner, self.width), False, True) for _ in range(2))
        return ops.matmul(ops.multiply(ops.swish(gate), up), self.w(self.width, self.inner), False, True)

    def gathered(self) -> Any:
        """The rows of each expert are gathered, and added to the result by a scatter, as in traced loops."""
        hot = ops.transpose(ops.one_hot(self.places, i(self.count), i(1), i(0), 2), axes(2, 1, 0))
        total = ops.broadcast(f(0), ops.shape_of(self.x))
        for number in range(self.count):
            own = ops.gather(hot, i(number), i(0))
            places = ops.split(ops.non_zero(own, "i64"), i(0), 2)
            rank, row = (ops.squeeze(places.output(side), axes(0)) for side in (0, 1))
            pairs = ops.concat([ops.unsqueeze(each, axes(1)) for each in (row, rank)], 1)
            share = ops.gather_nd(self.shares, pairs, 0)
            made = ops.multiply(self.expert(ops.gather(self.x, row, i(0))), ops.unsqueeze(share, axes(1)))
            where = ops.unsqueeze(row, axes(1))
            if number % 2:
                total = opset15.scatter_nd_update(total, where, made, "sum")
            else:
                places = ops.broadcast(where, ops.shape_of(made))
                total = opset12.scatter_elements_update(total, places, made, i(0), "sum", True)
        return total

    def shared(self) -> Any:
        """The share of each expert in each row: count, rows, 1."""
        extents = ops.concat([ops.gather(ops.shape_of(self.x), axes(0), i(0)), axes(self.count)], 0)
        shares = ops.scatter_elements_update(ops.broadcast(f(0), extents), self.places, self.shares, i(1))
        return ops.unsqueeze(ops.transpose(shares, axes(1, 0)), axes(-1))

    def batched(self) -> Any:
        """All experts compute all rows, in products of batches."""
        count, width, inner = self.count, self.width, self.inner
        rows = ops.reshape(ops.tile(self.x, axes(count, 1)), axes(count, -1, width), False)
        gate, up = (ops.matmul(rows, self.w(count, inner, width), False, True) for _ in range(2))
        made = ops.matmul(ops.multiply(ops.swish(gate), up), self.w(count, width, inner), False, True)
        return ops.reduce_sum(ops.multiply(made, self.shared()), axes(0), False)

    def branched(self) -> Any:
        """A branch for each expert, taken if a row chooses it."""
        shares, total = self.shared(), ops.multiply(self.x, f(0))
        for number in range(self.count):
            share = ops.gather(shares, i(number), i(0))
            branch = ops.if_op(ops.greater(ops.reduce_sum(share, axes(0, 1), False), f(0)).output(0))
            rows, before, same = (ops.parameter([-1, self.width], np.float32) for _ in range(3))
            part = ops.parameter([-1, 1], np.float32)
            more = ops.add(before, ops.multiply(self.expert(rows), part))
            branch.set_then_body(ov.Model([ops.result(more)], [rows, part, before], "expert"))
            branch.set_else_body(ov.Model([ops.result(same)], [same], "none"))
            for value, taken, other in ((self.x, rows, None), (share, part, None), (total, before, same)):
                branch.set_input(value.output(0), taken, other)
            total = branch.set_output(branch.get_then_body().get_results()[0],
                                      branch.get_else_body().get_results()[0]).get_node()
        return total


@pytest.mark.parametrize("sizes", [(9, 3, 2, 1), (12, 20, 4, 2), (7, 5, 5, 3)], ids=str)
@pytest.mark.parametrize("form", ["gathered", "batched", "branched"])
def test_experts_compute_the_rows_that_choose_them(form: str, sizes: tuple[int, int, int, int]) -> None:
    model = Experts(form, *sizes).model
    alone = ov.Core().compile_model(model, "CPU", EXACT)
    compiled = motet.openvino.compile_model(model, "CPU", "f32")
    products = sum(part.types["MatMul"] for part in compiled.report.replaced)
    assert products == (4 if form == "batched" else 1 + 3 * sizes[2])
    assert (form == "branched") == any(left.type == "If" for left in compiled.report.left)
    for rows in (1, 2, 5, 0, 17, 33):
        x = np.random.default_rng(rows).standard_normal((rows, sizes[0])).astype(np.float32)
        close(compiled([x])[0], alone([x])[0], f"{rows} rows")
