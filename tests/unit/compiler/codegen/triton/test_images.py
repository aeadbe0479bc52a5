"""Convolutions whose images the copy engine reads: what it is told to bring, multiplied here; programs are compiled."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import SM_90A, generate, random
from tests.unit.compiler.codegen.triton.texts import tensor

from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.codegen.triton.text.program import Form

Shape = tuple[int, int, int, int]


def convolution(image: Shape, filters: int, window: int, padding: int, dilation: int = 1, last: bool = False) -> str:
    """f16, sums in f32; channels before pixels, or, `last`, behind them."""
    n, c, h, w = image
    oh, ow = (size + 2 * padding - dilation * (window - 1) for size in (h, w))
    order = (lambda a, b, p, q: (a, p, q, b)) if last else (lambda a, b, p, q: (a, b, p, q))
    x, p = tensor(order(n, c, h, w), "f16"), tensor(order(n, c, h + 2 * padding, w + 2 * padding), "f16")
    k = tensor((window, window, c, filters) if last else (filters, c, window, window), "f16")
    wide, y = tensor(order(n, filters, oh, ow), "f32"), tensor(order(n, filters, oh, ow), "f16")
    pads = ", ".join(map(str, order(0, 0, padding, padding)))
    same = "affine_map<(a, b, c, d) -> (a, b, c, d)>"
    name = "conv_2d_nhwc_hwcf" if last else "conv_2d_nchw_fchw"
    return f"""
func.func @main(%x: {x}, %k: {k}) -> {y} {{
  %z = arith.constant 0.0 : f16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[{pads}] high[{pads}] {{
  ^bb0(%i: index, %j: index, %l: index, %m: index):
    tensor.yield %z : f16
  }} : {x} to {p}
  %e = tensor.empty() : {wide}
  %f = linalg.fill ins(%zero : f32) outs(%e : {wide}) -> {wide}
  %r = linalg.{name} {{strides = dense<1> : tensor<2xi64>, dilations = dense<{dilation}> : tensor<2xi64>}}
      ins(%p, %k : {p}, {k}) outs(%f : {wide}) -> {wide}
  %g = tensor.empty() : {y}
  %s = linalg.generic {{indexing_maps = [{same}, {same}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}} ins(%r : {wide}) outs(%g : {y}) {{
  ^bb0(%a: f32, %b: f16):
    %t = arith.truncf %a : f32 to f16
    linalg.yield %t : f16
  }} -> {y}
  return %s : {y}
}}"""


def naive(x: np.ndarray, k: np.ndarray, padding: int, dilation: int) -> np.ndarray:
    """NCHW, in f64."""
    p = np.pad(x.astype("f8"), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    window = k.shape[2]
    oh, ow = (size - dilation * (window - 1) for size in p.shape[2:])
    y = np.zeros((x.shape[0], k.shape[0], oh, ow))
    for i in range(window):
        for j in range(window):
            part = p[:, :, i * dilation : i * dilation + oh, j * dilation : j * dilation + ow]
            y += np.einsum("nchw,fc->nfhw", part, k[:, :, i, j].astype("f8"))
    return y


def image_forms_of(text: str) -> list[Form]:
    made = generate(text, SM_90A)
    program = made.programs[made.schedule.commands[-1].kernel]
    return [form for form in program.forms if form.label.startswith("images")]


class Engine:
    """A descriptor that copies, from an array, what the text of its making says."""

    nbytes_per_cta = 1

    def __init__(self, name: str, source: str, array: np.ndarray) -> None:
        found = re.search(rf"    {name} = tma.make_tensor_descriptor\(v\d+, (\[.*?\]), (\[.*?\]), (\[.*?\]), ", source)
        assert found is not None
        shape, strides, self.block = (ast.literal_eval(text) for text in found.groups())
        self.array = np.lib.stride_tricks.as_strided(array, shape, [8 * stride for stride in strides])

    def load(self, at: Sequence[int]) -> np.ndarray:
        """A block, with zeros outside."""
        block = np.zeros(self.block)
        for point in np.ndindex(*self.block[:-1]):
            place = [begin + step for begin, step in zip(at, point, strict=False)]
            if all(0 <= index < size for index, size in zip(place, self.array.shape, strict=False)):
                line = self.array[tuple(place)][at[-1] : at[-1] + self.block[-1]]
                block[point][: len(line)] = line
        return block


def number(name: str, source: str) -> int:
    found = re.search(rf"{name}(\d+)", source)
    assert found is not None
    return int(found.group(1))


def convolved(form: Form, image: np.ndarray, filters: np.ndarray, padding: int, shape: Sequence[int]) -> np.ndarray:
    """What the engine is told to bring, multiplied, at the pixels of the boxes: n × h × w × filters. The image lies
    with channels last, the filters as the program reads them."""
    source = form.source
    turns: list[list[tuple[Engine, list[int]]]] = []
    barriers = SimpleNamespace(wait=lambda *_: None, expect=lambda *_: turns.append([]))
    engine = SimpleNamespace(async_load=lambda what, at, *_: turns[-1].append((what, at)))
    grid = SimpleNamespace(program_id=lambda _: 0, num_programs=lambda _: 1, constexpr=int)
    jit = SimpleNamespace(jit=lambda function: function)
    names: dict[str, Any] = {"gluon": jit, "mbarrier": barriers, "tma": engine, "gl": grid}
    text = source[source.index("@gluon.jit\ndef tile") : source.index("@gluon.jit\ndef multiply")]
    exec(text.replace("tl.minimum", "min"), names)
    given: dict[str, Any] = {}
    for name in inspect.signature(names["fetch"]).parameters:
        given[name] = SimpleNamespace(index=lambda _: None)
        if name == "image" or name.startswith("filters"):
            given[name] = Engine(name, source, image if name == "image" else filters)
    given |= {name: number(f"    {name} = ", source) for name in ("rows", "columns")}
    names["fetch"](**given)
    y = np.zeros([size + 64 for size in shape[:3]] + [shape[3] + 256])
    count = number(r"for turn in range\(0, ", source)
    for position, loads in enumerate(turns):
        boxes = [(at, what.load(at)) for what, at in loads if what is given["image"]]
        corners = [at for what, at in turns[position - position % count] if what is given["image"]]
        for what, at in loads:
            if what is given["image"]:
                continue
            block = what.load(at)
            matrix, column = (block[0], at[2]) if what.block[0] == 1 else (block[:, 0].T, at[0])
            for (_, box), (n, h, w, _) in zip(boxes, corners, strict=True):
                h, w = h + padding, w + padding
                part = box @ matrix
                y[n : n + part.shape[0], h : h + part.shape[1], w : w + part.shape[2],
                  column : column + part.shape[3]] += part
    return y[tuple(slice(size) for size in shape)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("image", "filters", "window", "padding", "dilation"),
    [((3, 40, 9, 13), 40, 3, 1, 1), ((1, 72, 17, 5), 136, 3, 2, 2), ((5, 64, 6, 7), 72, 2, 0, 1)],
)
def test_the_engine_brings_what_makes_the_convolution(
    image: Shape, filters: int, window: int, padding: int, dilation: int, last: bool
) -> None:
    forms = image_forms_of(convolution(image, filters, window, padding, dilation, last))
    assert forms
    x, k = random(*image), random(filters, image[1], window, window, seed=1)
    y = naive(x, k, padding, dilation)
    channels_last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).astype("f8")
    own = k.transpose(2, 3, 1, 0) if last else k.transpose(0, 2, 3, 1)
    shape = (y.shape[0], y.shape[2], y.shape[3], filters)
    for form in forms:
        made = convolved(form, channels_last, np.ascontiguousarray(own).astype("f8"), padding, shape)
        np.testing.assert_allclose(made, y.transpose(0, 2, 3, 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("last", [False, True])
def test_programs_compile_without_spilling(last: bool) -> None:
    made = generate(convolution((8, 64, 14, 14), 128, 3, 1, last=last), SM_90A)
    program = made.programs[made.schedule.commands[-1].kernel]
    own = replace(program, forms=tuple(form for form in program.forms if form.label.startswith("images")))
    ((first, *_),) = compile_programs([own], SM_90A, 1)
    assert not first.spills and "cp.async.bulk.tensor.4d" in first.assembly and "wgmma" in first.assembly


def test_a_bias_that_is_widened_is_no_launch_of_its_own() -> None:
    plain = convolution((2, 64, 8, 8), 64, 3, 1)
    biased = plain.replace("%k: ", "%bias: tensor<64xf16>, %k: ").replace(
        "  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x8x8xf32>) -> tensor<2x64x8x8xf32>",
        """  %v = tensor.empty() : tensor<64xf32>
  %wide = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%bias : tensor<64xf16>) outs(%v : tensor<64xf32>) {
  ^bb0(%a: f16, %b: f32):
    %t = arith.extf %a : f16 to f32
    linalg.yield %t : f32
  } -> tensor<64xf32>
  %f = linalg.broadcast ins(%wide : tensor<64xf32>) outs(%e : tensor<2x64x8x8xf32>) dimensions = [0, 2, 3]""",
    )
    assert biased.count("%wide") == 2
    sizes = [spec.bytes for spec in generate(biased, SM_90A).schedule.buffers]
    assert 2 * 64 * 8 * 8 * 4 not in sizes  # the bias at every point


@pytest.mark.parametrize("text", [
    convolution((2, 20, 9, 9), 9, 3, 1, last=True),  # filters that begin anywhere
    convolution((2, 17, 9, 9), 40, 3, 1, last=True),  # lines of channels that begin anywhere
])
def test_what_the_engine_cannot_read_has_other_forms(text: str) -> None:
    assert not image_forms_of(text)
