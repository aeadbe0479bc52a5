"""Kernels have the names in the source of what they compute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples.models import MODELS
from tests.fuzz.as_mlir import mlir_module
from tests.fuzz.drawing import draw_graph
from tests.fuzz.languages import LANGUAGES

import motet
from motet.artifact.reader import Artifact
from motet.errors import CompileError, OptionError
from motet.runtime.trace import chrome_trace
from motet.tools.show import show_names

pytestmark = pytest.mark.usefixtures("all_levels")

HOST = "host{cpu=x86-64-v3}"
PROGRAM = """
func.func @main(%x: tensor<64x32xf32>, %w: tensor<32x16xf32>, %b: tensor<16xf32>) -> tensor<64x16xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x16xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x16xf32>) -> tensor<64x16xf32> loc("zero")
  %m = linalg.matmul ins(%x, %w : tensor<64x32xf32>, tensor<32x16xf32>)
      outs(%f : tensor<64x16xf32>) -> tensor<64x16xf32> loc("encoder.fc1")
  %a = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%m, %b : tensor<64x16xf32>, tensor<16xf32>) outs(%e : tensor<64x16xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<64x16xf32> loc("encoder.bias")
  return %a : tensor<64x16xf32>
}
"""

TWICE = """
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.matmul ins(%x, %x : tensor<64x64xf32>, tensor<64x64xf32>)
      outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32> loc("first")
  %n = linalg.matmul ins(%m, %m : tensor<64x64xf32>, tensor<64x64xf32>)
      outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32> loc("second")
  return %n : tensor<64x64xf32>
}
"""


def sources(artifact: Artifact) -> list[str]:
    """The names of every launch, of the first target."""
    schedules = artifact.manifest.variants[0].schedules.values()
    return [command.source for each in schedules for command in each.commands if command.op == "dispatch"]


def test_names_of_locations_survive_fusion() -> None:
    artifact = motet.compile(PROGRAM, devices=HOST)
    assert sources(artifact) == ["encoder.fc1 + encoder.bias"]
    assert artifact.manifest.variants[0].kernels[0].names == ["encoder.fc1 + encoder.bias"]


def test_operations_without_names_have_their_place() -> None:
    text = PROGRAM.replace('loc("encoder.fc1")', "").replace('loc("encoder.bias")', "").replace('loc("zero")', "")
    [source] = sources(motet.compile(text, devices=HOST))
    assert ":6:" in source and ":8:" in source


def test_names_do_not_change_code_or_sharing() -> None:
    plain = motet.compile(PROGRAM.replace("encoder.", "x."), devices=HOST)
    named = motet.compile(PROGRAM, devices=HOST)
    assert sources(plain) != sources(named)
    for member in plain.manifest.variants[0].objects:
        assert bytes(plain.member(member)) == bytes(named.member(member))


def test_equal_kernels_share_code_and_keep_their_names() -> None:
    artifact = motet.compile(TWICE, devices=HOST)
    assert sources(artifact) == ["first", "second"]
    symbols = {c.kernel for s in artifact.manifest.variants[0].schedules.values() for c in s.commands}
    assert len(symbols) == 1


def test_traces_and_profiles_have_names() -> None:
    from motet.tools.benching.inputs import random_inputs
    from motet.tools.profile import profile_kernels, profile_lines

    with motet.load(motet.compile(PROGRAM)) as session:
        arrays = random_inputs(session["main"].signature, "program")
        events = session["main"].trace(*arrays)[1]
        spans = [each for each in json.loads(chrome_trace(events, "main"))["traceEvents"] if each["ph"] == "X"]
        assert "encoder.fc1 + encoder.bias" in {span.get("args", {}).get("source") for span in spans}
        kernels = profile_kernels(session["main"], arrays, session.variants, lambda: None).kernels
    assert [kernel.source for kernel in kernels] == ["encoder.fc1 + encoder.bias"]
    assert any(line.endswith("encoder.fc1 + bias") for line in profile_lines(kernels))


def test_a_name_of_a_profile_is_a_pattern_of_placement() -> None:
    devices = {"a": "host", "b": "host"}
    artifact = motet.compile(PROGRAM, devices=devices, place={"encoder.fc1 + encoder.bias": "b"})
    assert {step.device for step in artifact.manifest.plans["main"].steps if step.op == "run"} == {1}
    with pytest.raises(OptionError, match=r"no operation has such a name; there are: .*encoder\.fc1"):
        motet.compile(PROGRAM, devices=devices, place={"encoder.fc2 + decoder": "b"})


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
def test_every_kernel_of_a_random_program_has_a_name(seed: int) -> None:
    mlir = LANGUAGES["mlir"]
    text = mlir_module([draw_graph(seed, 20, mlir.operators, mlir.says, 0.0)])
    assert all(sources(motet.compile(text, devices=HOST)))


@pytest.mark.slow
def test_every_kernel_of_resnet18_has_the_names_of_its_nodes(tmp_path: Path) -> None:
    proto = MODELS["resnet18"]()
    nodes = {node.name for node in proto.graph.node}
    found = sources(motet.compile(proto, devices=HOST))
    assert all(found)
    assert {name.split("/")[0] for source in found for name in source.split(" + ")} <= nodes


def test_names_of_one_module_are_shown_with_it_once() -> None:
    assert show_names("a + b + c + d + e") == "a + b + c + d + e"
    assert show_names("a + b + c + d + e", 4) == "a + b + c + 2 more"
    assert show_names("layer1.0.conv2 + layer1.0.bn2 + layer1.0 + relu") == "layer1.0.conv2 + bn2 + layer1.0 + relu"
    assert show_names("jit(f)/head/max + jit(f)/head/sub") == "jit(f)/head/max + sub"
    assert show_names("") == "-"


@pytest.mark.parametrize("language", ["mlir", "onnx", "stablehlo"])
@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 24))])
def test_every_name_of_a_random_profile_is_a_pattern_of_placement(seed: int, language: str) -> None:
    devices = {"a": "host", "b": "host"}
    known = LANGUAGES[language]
    program = known.write([draw_graph(seed, 12, known.operators, known.says, 0.0)])
    try:
        found = dict.fromkeys(sources(motet.compile(program, devices=HOST)))
    except CompileError as error:
        pytest.skip(f"drawn, but refused: {error}")
    for source in filter(None, found):
        artifact = motet.compile(program, devices=devices, place={show_names(source): "b"})
        assert artifact.manifest.plans, source


def test_names_with_brackets_and_of_inner_modules_are_patterns() -> None:
    text = PROGRAM.replace("encoder.fc1", "pjit[name=f]/fc1").replace("encoder.bias", "pjit[name=f]/bias")
    devices = {"a": "host", "b": "host"}
    artifact = motet.compile(text, devices=devices, place={"pjit[name=f]/fc1 + bias": "b"})
    assert {step.device for step in artifact.manifest.plans["main"].steps if step.op == "run"} == {1}
    with pytest.raises(OptionError, match="3 more names were left out where this was shown"):
        motet.compile(text, devices=devices, place={"pjit[name=f]/fc1 + 3 more": "b"})
