"""Programs whose kernels are of every class that GPUs have, and what each of their forms becomes for an Intel GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest
from tests.unit.compiler.codegen import whole_texts
from tests.unit.compiler.codegen.triton import attention_texts, building, test_depthwise
from tests.unit.compiler.codegen.triton.attention_texts import Form
from tests.unit.compiler.codegen.triton.products import ProductText
from tests.unit.compiler.codegen.triton.texts import convolution, nest, product, softmax, tensor

from motet.compiler.codegen.triton.compile.process import begin
from motet.compiler.codegen.triton.compile.worker import Made, ProgramUnit, Request
from motet.compiler.codegen.triton.text.program import Form as TritonForm
from motet.compiler.codegen.triton.text.program import TritonProgram
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget

DEVICES = ("pvc", "dg2", "tgllp")


@dataclass(frozen=True)
class Compiled:
    """A form of a program, and what it became."""

    program: str
    label: str
    made: Made


def _products() -> Iterator[tuple[str, str]]:
    for dtype in ("f16", "bf16", "f32", "i8"):
        for turned in ((False, False), (True, False), (False, True), (True, True)):
            sides = "".join("t" if each else "n" for each in turned)
            yield f"product-{dtype}-{sides}", ProductText(65, 96, 129, dtype, turned=turned).text
    yield "product-large-f16", ProductText(1024, 1024, 512, "f16").text
    yield "product-large-f16-tn", ProductText(1024, 512, 512, "f16", turned=(True, False)).text
    yield "product-large-f16-nt", ProductText(512, 1024, 512, "f16", turned=(False, True)).text
    yield "product-large-f32", ProductText(512, 512, 512, "f32").text
    yield "product-batch", ProductText(33, 40, 64, "bf16", batch=3, follows=("bias", "gelu")).text
    yield "product-residual", ProductText(128, 128, 128, "f16", follows=("bias", "residual", "relu")).text
    yield "product-f8", ProductText(32, 32, 64, "f8E4M3FN").text
    yield "product-dynamic", product("?", 48, 72, "f32", "f32")
    yield "product-one-row", ProductText(1, 1000, 512, "f16").text
    yield "product-one-row-f32", ProductText(1, 77, 300, "f32", turned=(False, True)).text
    yield "product-tiny", ProductText(3, 5, 7, "f32").text


def _attention() -> Iterator[tuple[str, str]]:
    for dtype in ("f16", "bf16", "f32"):
        yield f"attention-{dtype}", attention_texts.text(Form(2, 2, 1, 65, 97, 32, 32, dtype))
        yield f"attention-whole-{dtype}", attention_texts.text(Form(1, 2, 1, 128, 128, 64, 64, dtype))
        yield f"attention-wide-{dtype}", attention_texts.text(Form(1, 1, 1, 64, 64, 128, 128, dtype))
    yield "attention-causal", attention_texts.text(Form(1, 2, 1, 64, 64, 64, 64, "f16", mask="causal"))
    yield "attention-masked", attention_texts.text(Form(1, 2, 1, 33, 70, 32, 32, "f16", mask="float"))
    yield "attention-grouped", attention_texts.text(Form(1, 2, 4, 40, 40, 64, 64, "bf16"))
    yield "attention-one-query", attention_texts.text(Form(1, 8, 1, 1, 1024, 64, 64, "f16"))
    yield "attention-few-queries", attention_texts.text(Form(1, 2, 1, 3, 2048, 64, 64, "f16"))
    yield "attention-dynamic", attention_texts.text(Form(2, 2, 1, 20, 30, 32, 32, "f16", dynamic=True))


def _others() -> Iterator[tuple[str, str]]:
    for columns in (7, 1000, 4097, 70_000):
        yield f"softmax-{columns}", softmax(3, columns)
    yield "softmax-f16", softmax(33, 127, "f16")
    yield "softmax-dynamic", softmax("?", 77)
    wide, narrow = tensor((300, 517), "f32"), tensor((517,), "f32")
    body = ["%s = arith.addf %y0, %x0 : f32"]
    yield "sum-of-columns", nest([(wide, "i, j")], [(narrow, "j", "0.0")], "rp", body, ["%s"])
    for name in ("exp", "log", "sin", "tanh", "erf", "floor", "rsqrt", "atan"):
        kind = tensor((1037,), "f32")
        yield f"math-{name}", nest([(kind, "i")], [(kind, "i", "")], "p", [f"%z = math.{name} %x0 : f32"], ["%z"])
    for dtype in ("f32", "f16"):
        yield f"convolution-{dtype}", convolution((1, 16, 14, 14), 32, 3, 1, 1, dtype)
        yield f"convolution-strided-{dtype}", convolution((2, 3, 30, 31), 24, 7, 2, 3, dtype)
        yield f"depthwise-{dtype}", test_depthwise.depthwise((2, 5, 9, 13), 3, 1, 1, 1, dtype=dtype)
        yield f"depthwise-last-{dtype}", test_depthwise.depthwise((1, 24, 17, 7), 3, 2, 1, 1, last=True, dtype=dtype)
    yield "scan", whole_texts.scan((3, 1000), 1, "arith.addf", "f32")
    yield "scan-across", whole_texts.scan((70, 5), 0, "arith.addi", "i32", begin="0")
    yield "sort", whole_texts.sort((3, 37), 1, "arith.cmpf olt", "f32")


TEXTS: Mapping[str, str] = {**dict(_products()), **dict(_attention()), **dict(_others())}


def _generated(text: str, target: GpuTarget) -> dict[str, TritonProgram]:
    with pytest.MonkeyPatch.context() as patch:
        if "tm_tensor" in text:
            patch.setattr(building, "load_mlir", whole_texts.load)
        return building.generate(text, target).programs


def _unit(program: TritonProgram, form: TritonForm, symbol: str) -> ProgramUnit:
    """`form` under the name `symbol`, since the files of programs in one request are named by their symbols."""
    return ProgramUnit(
        symbol, form.source.replace(f"def {program.symbol}(", f"def {symbol}("), program.buffers, program.sizes,
        form.warps, form.stages, form.blocks, form.early,
    )


def compiled_forms(device: str, wanted: Callable[[str], bool] = lambda name: True, jobs: int = 2) -> list[Compiled]:
    """Every form of every program of `TEXTS` that is `wanted`, each compiled alone, for a target of the family `intel`,
    as `tgllp` or `tgllp/32`."""
    target = resolve_target(f"intel:{device}")
    assert isinstance(target, GpuTarget)
    names: list[tuple[str, str]] = []
    units: list[list[ProgramUnit]] = []
    for name, text in TEXTS.items():
        if not wanted(name):
            continue
        for program in _generated(text, target).values():
            for number, form in enumerate(program.forms):
                names.append((f"{name}/{program.symbol}", form.label or str(number)))
                units.append([_unit(program, form, f"form{len(units)}")])
    made = begin(Request(target, units, jobs, 1)).result()
    return [Compiled(*name, one) for name, (one, *_) in zip(names, made, strict=True)]
