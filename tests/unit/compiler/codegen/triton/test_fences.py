"""Programs in Gluon that have all their fences, as Triton finds as well."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.compiler.codegen.triton.attention_texts import Form as Attention
from tests.unit.compiler.codegen.triton.attention_texts import text as attention_text
from tests.unit.compiler.codegen.triton.building import SM_90A, generate
from tests.unit.compiler.codegen.triton.texts import convolution, product

from motet.compiler.codegen.triton.compile.fences import fences_itself
from motet.compiler.codegen.triton.compile.objects import compile_programs

HEAD = "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"


@pytest.mark.parametrize(("body", "expected"), [
    ("out.store(x)\nfence_async_shared()", True),
    ("    out.store(x)\n\n    fence_async_shared()\n    tma.async_store(d, [0], out)\n    tma.store_wait(0)", True),
    ("x = tl.load(v0 + i)\ny = gl.load(v1)\ntl.store(v2, x)\ngl.store(v2, y)", True),
    ("s = gl.allocate_shared_memory(tl.bfloat16, [4, 8], layout)", True),
    ("out.store(x)\ntma.async_store(d, [0], out)\nfence_async_shared()", False),
    ("out.store(x)", False),
    ("x = lefts.index(place).load(layout)", False),
    ("x = lefts.gather(i, 0)", False),
    ("s = gl.allocate_shared_memory(tl.bfloat16, [4, 8], layout, value=x)\nother()", False),
])
def test_every_write_has_its_fence_and_nothing_is_read(body: str, expected: bool):
    assert fences_itself(HEAD + body) is expected


def test_of_programs_that_are_not_in_gluon_nothing_is_said():
    assert not fences_itself("out.store(x)\nfence_async_shared()")


PROGRAMS = {
    "product": lambda: product(4096, 4096, 4096, "bf16", "bf16"),
    "small product": lambda: product(520, 776, 264, "f16", "f32"),
    "bytes": lambda: product(2048, 2048, 2048, "i8", "i32", "i, k", "j, k"),
    "images": lambda: convolution((64, 128, 56, 56), 128, 3, 1, 1, "bf16"),
    "attention": lambda: attention_text(Attention(2, 4, 1, 1024, 1024, 128, 128, "bf16")),
    "causal attention": lambda: attention_text(Attention(1, 8, 2, 1024, 1024, 128, 128, "bf16", "causal")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_triton_finds_no_more_of_them(name: str):
    fenced = 0
    for program in generate(PROGRAMS[name]()).programs.values():
        for form in [each for each in program.forms if fences_itself(each.source)][:2]:
            looked_for = replace(form, source=f"# shared.load(\n{form.source}")
            assert not fences_itself(looked_for.source)
            (made,), (expected,) = (
                compile_programs([replace(program, forms=(each,))], SM_90A, 1)[0] for each in (form, looked_for)
            )
            assert not made.error
            assert made.assembly == expected.assembly
            assert made.code == expected.code
            fenced += "fence.proxy.async" in made.assembly
    assert fenced or name == "small product"
