"""The passes of placement in pipelines of text, mixed with upstream's, and what is written beside operations."""

from __future__ import annotations

import pytest
from tests.unit.compiler.placement.modules import DEVICES, FILE, spelled

from motet.compiler.frontends.mlir import load_mlir
from motet.compiler.passes import registry
from motet.compiler.pipeline import annotate_devices
from motet.compiler.placement.place import Place
from motet.compiler.stages import optimise
from motet.compiler.targets.device_flags import parse_device_flags
from motet.errors import CompileError, MotetError, OptionError

F = spelled(DEVICES + """
func.func @f(%x: $T) -> $T {
  %0 = math.exp %x : $T
  %1 = $move %0 : $T to #hal.device.promise<@b>
  %2 = arith.addf %1, %1 : $T
  return %2 : $T
}""")
READ = "materialize-devices,resolve-promises"


def test_every_pass_has_the_name_by_which_it_is_run():
    assert set(registry.PASSES) >= {
        "materialize-devices", "resolve-promises", "resolve-globals", "resolve-aliases", "assign-devices",
        "verify-devices", "annotate-affinities", "place-operations", "insert-transfers", "fold-transfers",
        "outline-regions", "erase-devices", "inline-calls", "anchor-operations",
    }
    for name in registry.PASSES:
        assert registry.make(name).name == name


def test_passes_run_one_by_one():
    text = optimise(F, FILE, "materialize-devices")
    assert text.count("motet.device") == 3 and "hal.device.promise<@b>" in text
    text = optimise(text, FILE, "resolve-promises")
    assert 'to = "b"' in text and "hal" not in text
    text = optimise(text, FILE, "place-operations")
    assert 'math.exp %arg0 {motet.affinity = "a"}' in text and 'addf %1, %1 {motet.affinity = "b"}' in text
    text = optimise(text, FILE, "insert-transfers,fold-transfers,outline-regions,erase-devices")
    assert "@f_region_0" in text and "@f_region_1" in text and "@f(" not in text


def test_passes_mix_with_upstreams():
    text = optimise(F, FILE, f"canonicalize,{READ},func.func(cse,canonicalize),place-operations,cse")
    assert text.count("motet.affinity") == 2
    text = optimise(F, FILE, f"{READ},erase-devices,convert-elementwise-to-linalg,canonicalize")
    assert text.count("linalg.generic") == 2 and "motet" not in text


def test_passes_of_functions_need_no_nesting():
    loop = "func.func @f(%x: memref<4xf32>, %v: f32) {" \
        " affine.for %i = 0 to 4 { affine.store %v, %x[%i] : memref<4xf32> } return }"
    found = optimise(loop, FILE, "affine-parallelize{max-nested=1},lower-affine,gpu-map-parallel-loops")
    assert "scf.parallel" in found and "gpu.loop_dim_map" in found
    assert found == optimise(loop, FILE, "func.func(affine-parallelize,lower-affine,gpu-map-parallel-loops)")
    mapped = optimise(loop, FILE, "convert-affine-for-to-gpu{gpu-thread-dims=0},canonicalize")  # says it when scheduled
    assert "gpu.launch" in mapped and "affine.for" not in mapped
    assert mapped == optimise(loop, FILE, "func.func(convert-affine-for-to-gpu{gpu-thread-dims=0}),canonicalize")
    with pytest.raises(CompileError, match="affine-parallelize` with options `x=1`"):
        optimise(loop, FILE, "affine-parallelize{x=1}")


def test_devices_are_assigned_by_flags():
    text = optimise(F, FILE, f"{READ},assign-devices{{b=host{{cpu=x86-64-v3}},@a d=null[1]}},verify-devices")
    assert 'alternatives = ["host", "@a"], sym_name = "b"' in text
    assert 'alternatives = ["null[1]"], sym_name = "d"' in text
    text = optimise(
        "func.func @f() { return }", FILE,
        'assign-devices{#hal.device.target<"local",{ordinal = 1 : index}> null}',
    )
    assert 'alternatives = ["host[1]"], sym_name = "__device_0"' in text
    assert 'alternatives = ["null"], sym_name = "__device_1"' in text


def test_flags_fill_the_devices_of_a_program_that_was_not_read():
    flags = parse_device_flags(["host", "null"])
    assigned = optimise(F, FILE, "assign-devices", flags)
    assert 'alternatives = ["host"], sym_name = "a"' in assigned and "__device_" not in assigned
    regions = optimise(F, FILE, "place", flags)
    assert "@f_region_1(" in regions and 'motet.device = "b"' in regions
    assert optimise(F, FILE, "read-devices,place", flags) == regions


@pytest.mark.parametrize(("pipeline", "kind", "message"), [
    ("verify-devices{x}", OptionError, "pass verify-devices: option x: unknown; it takes no options"),
    ("assign-devices{a=nosuch}", OptionError, "nosuch is no family of devices"),
    ("verify-device", CompileError, "verify-device"),
    (f"{READ},assign-devices{{b=@z}},verify-devices", CompileError, "@b: its fallback @z names no device"),
    ("canonicalize,verify-devices,no-such-pass", CompileError, "no-such-pass"),
])
def test_pipelines_that_mean_nothing(pipeline: str, kind: type[MotetError], message: str):
    with pytest.raises(kind) as caught:
        optimise(F, FILE, pipeline)
    assert message in str(caught.value)


def annotated(text: str, *flags: str) -> str:
    return annotate_devices(load_mlir(text, FILE), Place(parse_device_flags(flags)))


def test_affinities_are_written_beside_operations():
    lines = annotated(F).splitlines()
    (transfer,) = [line for line in lines if "motet.transfer" in line]
    assert 'motet.affinities.operands = ["a"]' in transfer and 'motet.affinities.results = ["b"]' in transfer
    (addition,) = [line for line in lines if "arith.addf" in line]
    assert 'motet.affinities.execution = "b"' in addition and 'operands = ["b", "b"]' in addition
    (function,) = [line for line in lines if "func.func" in line]
    assert 'motet.affinities.results = "a", motet.affinities.uses = "a"' in function
    assert 'motet.affinities.execution = "b"' in function.partition("->")[2]


def test_readers_on_several_devices_are_written_beside_what_they_read():
    text = annotated(spelled(
        DEVICES + "func.func @f(%x: $T) -> ($T, $T) {\n  %c = arith.constant dense<[1., 2., 3., 4.]> : $T\n"
        "  %0 = arith.addf %x, %c : $T\n  %1 = arith.mulf %c, %c {$on $B} : $T\n  return %0, %1 : $T, $T }"
    ))
    (constant,) = [line for line in text.splitlines() if "arith.constant" in line]
    assert 'motet.affinities.uses = ["b|a"]' in constant or 'motet.affinities.uses = ["a|b"]' in constant
    assert 'motet.affinities.results = [""]' in constant


def test_what_is_written_is_read_again():
    text = annotated(F, "b=null")
    assert optimise(text, FILE, "canonicalize") is not None
    assert annotated(text) == text
