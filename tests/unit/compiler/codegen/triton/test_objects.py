"""Machine code for GPUs, made without one: what a launch needs to know, registers, and what is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.codegen.triton.texts import product, softmax

from motet.artifact.schema import Variant
from motet.compiler import pipeline
from motet.compiler.codegen.gpu.cubin import read_resources
from motet.compiler.codegen.triton.compile import objects
from motet.compiler.codegen.triton.compile.objects import compile_programs, require_triton
from motet.compiler.codegen.triton.text.program import Form, TritonProgram
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget
from motet.errors import CompileError, OptionError

TARGETS = ("cuda:sm_80", "cuda:sm_90a", "cuda:ptx80", "hip:gfx942")


def build(text: str, targets: Sequence[str]) -> pipeline.Built:
    program = load_mlir(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        return pipeline.build(program, list(map(resolve_target, targets)), 2, lambda what, fraction: None)


def members(built: pipeline.Built, variant: Variant) -> tuple[bytes, dict[str, object], str]:
    """The binary of a variant's only program, what a launch needs to know, and the source."""
    code, launch = (built.members[name] for name in variant.objects)
    source = built.members[f"{variant.objects[1].removesuffix('.json')}.py"]
    return code, json.loads(launch), source.decode()


@pytest.fixture(scope="module")
def matmul() -> pipeline.Built:
    return build(product(200, 136, 72, "f16", "f32"), TARGETS)


def test_every_target_has_its_binary_and_its_source(matmul: pipeline.Built) -> None:
    endings = {"sm_80": "cubin", "sm_90a": "cubin", "ptx80": "ptx", "gfx942": "hsaco"}
    assert [f"{v.family}:{v.target}" for v in matmul.manifest.variants] == list(TARGETS)
    for variant in matmul.manifest.variants:
        code, launch, source = members(matmul, variant)
        base = f"executables/{variant.family}/{variant.target}/{launch['kernel']}"
        assert variant.objects == [f"{base}.{endings[variant.target]}", f"{base}.json"]
        assert variant.features == [variant.target]
        assert f"def {launch['kernel']}(v0, v1, v2, v3):" in source
        assert launch["buffers"] == 4 and launch["sizes"] == [] and launch["ctas"] == 1
        if endings[variant.target] == "ptx":
            assert b".target sm_80" in code and b".version 8.0" in code
            assert f".visible .entry {launch['entry']}(".encode() in code
        else:
            assert code[:5] == b"\x7fELF\x02" and str(launch["entry"]).encode() in code


def test_cubins_are_of_their_architecture(matmul: pipeline.Built) -> None:
    for variant in matmul.manifest.variants[:2]:
        code, _, _ = members(matmul, variant)
        (flags,) = struct.unpack_from("<I", code, 0x30)
        wanted = {"sm_80": 80, "sm_90a": 90}[variant.target]
        assert wanted in (flags & 0xFF, flags >> 8 & 0xFF)


def test_no_program_spills_or_takes_more_than_a_block_has(matmul: pipeline.Built) -> None:
    for variant in matmul.manifest.variants:
        _, launch, _ = members(matmul, variant)
        assert launch["spills"] == 0
        assert 0 < int(str(launch["shared"])) <= resolve_target(f"{variant.family}:{variant.target}").shared
        if variant.family == "cuda":
            assert 16 <= int(str(launch["registers"])) <= 255


def test_the_grid_covers_the_result_with_the_tile_that_was_taken(matmul: pipeline.Built) -> None:
    for variant in matmul.manifest.variants:
        _, _, source = members(matmul, variant)
        (command,) = variant.schedules["main"].commands
        line = next(line for line in source.splitlines() if line.strip().startswith("acc = tl.zeros"))
        m, n = (int(part) for part in line.partition("((")[2].partition(")")[0].split(","))
        assert command.tasks == -(-200 // m) * -(-136 // n)


def test_dynamic_extents_are_arguments() -> None:
    built = build(softmax("?", 61), ["cuda:sm_90a"])
    (variant,) = built.manifest.variants
    _, launch, source = members(built, variant)
    assert launch["sizes"] == ["i64"] and "def main_kernel_0(v0, v1, s_a0_0):" in source
    (command,) = variant.schedules["main"].commands
    assert len(command.sizes) == 1 and not isinstance(command.tasks, int)


def test_registers_are_read_from_the_cubin(matmul: pipeline.Built) -> None:
    code, launch, _ = members(matmul, matmul.manifest.variants[1])
    found = read_resources(code, str(launch["entry"]))
    assert (found.registers, found.spills) == (launch["registers"], launch["spills"])
    assert read_resources(code, "another").registers == 0
    with pytest.raises(ValueError, match="not an ELF file"):
        read_resources(b"text", "main")


COPY = """
import triton
import triton.language as tl

@triton.jit
def copy(v0, v1):
    o = tl.arange(0, {block})
    tl.store(v1 + o, tl.sort(tl.load(v0 + o)))
"""


def test_a_form_that_does_not_compile_gives_way_to_the_next() -> None:
    target = resolve_target("cuda:sm_80")
    forms = (Form(COPY.format(block=100), 1), Form(COPY.format(block=128), 1))
    ((made,),) = compile_programs([TritonProgram("copy", ("fp32", "fp32"), (), forms)], target, 1)
    assert made.form == 1 and made.entry == "copy"


ANOTHER_GLUON = """
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import {name}

@triton.jit
def copy(v0, v1):
    pass
"""


def test_a_form_that_this_triton_has_no_words_for_gives_way_to_the_next() -> None:
    forms = (Form(ANOTHER_GLUON.format(name="of_another_version"), 1), Form(COPY.format(block=128), 1))
    ((made,),) = compile_programs(
        [TritonProgram("copy", ("fp32", "fp32"), (), forms)], resolve_target("cuda:sm_90a"), 1
    )
    assert made.form == 1 and made.entry == "copy"


def test_a_program_that_no_form_fits_is_one_error() -> None:
    program = TritonProgram("copy", ("fp32", "fp32"), (), (Form(COPY.format(block=100), 1),))
    with pytest.raises(CompileError, match=r"kernel copy: no code for cuda sm_80: Triton: .*power of 2"):
        compile_programs([program], resolve_target("cuda:sm_80"), 1)


def test_too_much_shared_memory_is_one_error() -> None:
    target = resolve_target("cuda:sm_80")
    assert isinstance(target, GpuTarget)
    program = TritonProgram("copy", ("fp32", "fp32"), (), (Form(COPY.format(block=1024), 1),))
    with pytest.raises(CompileError, match=r"kernel copy: .* bytes of shared memory; sm_80 has 16 for a block"):
        compile_programs([program], replace(target, shared=16), 1)


def test_without_triton_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"device cuda: .*Triton, which is not installed; pip install 'motet\[gpu\]'"):
        build(softmax(3, 4), ["cuda:sm_80"])


def test_control_flow_is_one_error() -> None:
    text = """
func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %nine = arith.constant 9 : index
  %r = scf.for %i = %zero to %nine step %one iter_args(%y = %x) -> (tensor<9xf32>) {
    %v = tensor.extract %y[%zero] : tensor<9xf32>
    %w = math.exp %v : f32
    %z = tensor.insert %w into %y[%i] : tensor<9xf32>
    scf.yield %z : tensor<9xf32>
  }
  return %r : tensor<9xf32>
}"""
    said = r"kernel main_kernel_0: no code can be made for cuda devices: operation tensor.insert"
    with pytest.raises(CompileError, match=said):
        build(text, ["cuda:sm_90a"])


def test_another_version_of_triton_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, words in (("3.6.0", "3.6.0 is installed"), ("3.10.1", "3.10.1 is installed"), ("3.9.1", "")):
        monkeypatch.setattr("importlib.metadata.version", lambda name, version=version: version)
        if not words:
            require_triton(resolve_target("cuda:sm_90a"))
            continue
        with pytest.raises(OptionError) as raised:
            require_triton(resolve_target("cuda:sm_90a"))
        message = str(raised.value)
        assert "code for sm_90a is made by Triton 3.9; " in message and words in message and "\n" not in message
        assert "tune=candidates" in message and "motet tune" in message
