"""Device declarations that another compiler crashes on, hangs on or takes for something else, by their number."""

from __future__ import annotations

import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.placement.modules import FILE, spelled

import motet
from motet.artifact.schema import Alternative, LogicalDevice
from motet.compiler.ir.program import Placement
from motet.compiler.placement.place import Place
from motet.compiler.targets.device_flags import parse_device_flags
from motet.errors import CompileError, MotetError

F = "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T }"
LOCAL = Alternative("host")


def placement_of(text: str, *flags: str) -> Placement:
    placement = load_mlir(spelled(text), FILE, Place(parse_device_flags(flags), automatic=False)).placement
    assert placement is not None
    return placement


def error_of(text: str, *flags: str) -> str:
    with pytest.raises(MotetError) as caught:
        load_mlir(spelled(text), FILE, Place(parse_device_flags(flags), automatic=False))
    return str(caught.value)


OPTIONAL = """
  util.global private @required = #hal.device.target<"local"> : !hal.device
  util.global private @optional = #hal.device.select<[
    #hal.device.target<"local", {ordinal = 1 : index}> : !hal.device,
    #hal.device.fallback<@required> : !hal.device
  ]> : !hal.device
"""


def test_b1_an_optional_device_is_the_default():
    placement = placement_of(
        f"module attributes {{stream.affinity.default = #hal.device.affinity<@optional>}} {{ {OPTIONAL} {F} }}"
    )
    assert placement.devices == [
        LogicalDevice("required", [LOCAL]),
        LogicalDevice("optional", [Alternative("host", 1), Alternative(fallback="required")]),
    ]
    assert placement.default == 1
    assert [step.device for step in placement.plans["f"].steps] == [1]


def test_b1_an_optional_device_by_flags():
    placement = placement_of(F, "optional=local[1],@required", "required=local")
    assert [device.name for device in placement.devices] == ["optional", "required"]
    assert placement.devices[0].alternatives == [Alternative("host", 1), Alternative(fallback="required")]


@pytest.mark.parametrize(("text", "message"), [
    ("util.global private @a = #hal.device.fallback<@a> : !hal.device ", "@a -> @a"),
    ("util.global private @a = #hal.device.fallback<@b> : !hal.device "
     "util.global private @b = #hal.device.fallback<@a> : !hal.device ", "@a -> @b -> @a"),
    ("util.global private @a = #hal.device.fallback<@nosuch> : !hal.device ", "@nosuch names no device"),
])
def test_b1b_fallbacks_without_an_end(text: str, message: str):
    assert message in error_of(text + F)


def test_b2_every_family_keeps_the_code_of_all_kernels():
    text = spelled(
        "// two products\nfunc.func @f(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> { "
        "%z = arith.constant 0.0 : f32 "
        "%e = tensor.empty() : tensor<8x8xf32> "
        "%i = linalg.fill ins(%z : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32> "
        "%0 = linalg.matmul ins(%x, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%i : tensor<8x8xf32>) "
        "-> tensor<8x8xf32> "
        "%1 = linalg.matmul ins(%0, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%i : tensor<8x8xf32>) "
        "-> tensor<8x8xf32> return %1 : tensor<8x8xf32> }"
    )
    for flag in ("null,host{cpu=x86-64-v3}", "host{cpu=x86-64-v3},null"):
        manifest = motet.compile(text, devices={"d": flag}).manifest
        assert {variant.family for variant in manifest.variants} == {"host", "null"}
        for variant in manifest.variants:
            (schedule,) = variant.schedules.values()
            assert len([command for command in schedule.commands if command.op == "dispatch"]) >= 2


def test_b3_a_missing_promise_is_one_error():
    promise = "#hal.device.promise<@device_b>"
    error = error_of(
        'util.global private @device_a = #hal.device.alias<"local"> : !hal.device\n'
        f"func.func @f(%x: $T) -> $T {{\n  %0 = $move %x : $T to {promise}\n  %1 = $move %0 : $T to {promise}\n"
        "  return %1 : $T }"
    )
    assert error == (
        f"{FILE}:3:8: transfer to @device_b names no device; declared: @device_a; declare it in the program, "
        "or give --device device_b=…"
    )


def test_b4_an_attribute_as_a_flag_has_no_name():
    attribute = '#hal.device.target<"local", {ordinal = 1 : index}>'
    assert placement_of(F, attribute).devices == [LogicalDevice("__device_0", [Alternative("host", 1)])]
    both = placement_of(F, attribute, "null")
    assert [device.name for device in both.devices] == ["__device_0", "__device_1"]


def test_b5_the_first_flag_is_the_default():
    placement = placement_of(F, "z=local", "a=vulkan")
    assert ([device.name for device in placement.devices], placement.default) == (["z", "a"], 0)
    attributes = 'hal.device.targets = {z = #hal.device.alias<"local">, a = [#hal.device.alias<"vulkan">]}'
    placement = placement_of(f"module attributes {{{attributes}}} {{ {F} }}")
    assert ([device.name for device in placement.devices], placement.default) == (["z", "a"], 0)


@pytest.mark.parametrize(("flags", "message"), [
    (("local[x]",), "ordinal"),
    (("local[3]xyz",), "'xyz'"),
    (("a,",), "the end"),
    (("a=local", "a=local"), "twice"),
    (('#hal.device.target<"local", {ordinal = "one"}>',), "expected a number"),
    (('#hal.device.target<"local", {ordinal = -2 : index}>',), "expected a number"),
])
def test_b6_what_is_no_device_is_refused(flags: tuple[str, ...], message: str):
    assert message in error_of(F, *flags)


@pytest.mark.parametrize("queues", ["64", "-1", ""])
def test_b6_what_is_no_queue_is_refused(queues: str):
    text = f"func.func @f(%x: $T) -> $T {{ %0 = math.exp %x {{$on #hal.device.affinity<@a, [{queues}]>}} : $T " \
        "return %0 : $T }"
    assert "from 0 to 63" in error_of(text, "a=local")


def test_b7_two_devices_of_a_family_without_ordinals_may_be_two():
    # An ordinal that is not given is the first device that no other one has.
    placement = placement_of(F, "device_a=local", "device_b=local")
    assert [device.alternatives for device in placement.devices] == [[LOCAL], [LOCAL]]
    assert LOCAL.ordinal is None


@pytest.mark.parametrize(("attributes", "message"), [
    ('hal.device.default = "nosuch"', "default device @nosuch names no device; declared: @a"),
    ("hal.device.default = 5 : index", "default device 5: expected a number from 0 to 0"),
    ("stream.affinity.default = #hal.device.affinity<@f>", "default device @f is a func.func, not a device"),
])
def test_b8_a_wrong_name_is_named(attributes: str, message: str):
    device = 'util.global private @a = #hal.device.alias<"local"> : !hal.device '
    assert message in error_of(f"module attributes {{{attributes}}} {{ {device} {F} }}")


def test_b9_an_empty_list_of_targets():
    error = error_of(f"module attributes {{hal.device.targets = [[]]}} {{ {F} }}")
    assert "hal.device.targets: device __device_0: its list is empty" in error


def test_b9_a_select_without_types():
    devices = placement_of(
        'util.global private @g = #hal.device.select<[#hal.device.alias<"cuda">, #hal.device.alias<"local">]> '
        f": !hal.device {F}"
    ).devices
    assert devices == [LogicalDevice("g", [Alternative("cuda"), LOCAL])]


def test_b10_executable_targets_say_nothing_that_is_needed():
    target = '#hal.executable.target<"llvm-cpu", "embedded-elf-x86_64">'
    devices = placement_of(
        f'#cpu = {target} util.global private @a = #hal.device.target<"local", {{ordinal = 0 : index}}, '
        f'[#cpu, #hal.executable.target<"vmvx", "vmvx-bytecode-fb", {{ukernels = "all"}}>]> : !hal.device {F}'
    ).devices
    assert devices == [LogicalDevice("a", [Alternative("host", 0)])]


def test_b11_selections_in_selections():
    devices = placement_of(
        'util.global private @g = #hal.device.select<[#hal.device.select<[#hal.device.alias<"cuda">, '
        '#hal.device.alias<"hip"[1]>]>, #hal.device.ordinal<3>, #hal.device.alias<"local">]> : !hal.device ' + F
    ).devices
    assert devices == [LogicalDevice("g", [Alternative("cuda"), Alternative("hip", 1), Alternative("", 3), LOCAL])]


def test_b12_a_topology_is_kept_for_the_runtime():
    links = "(@a -> @b = {transparent_access = true, unified_memory = true}), (@b -> @a = {unified_memory = true})"
    placement = placement_of(
        f"module attributes {{stream.topology = #hal.device.topology<links = [{links}]>}} {{ {F} }}",
        "a=local", "b=local",
    )
    assert [(link.source, link.target, link.transparent_access, link.unified_memory) for link in placement.links] == [
        ("a", "b", True, True), ("b", "a", False, True),
    ]


def test_errors_of_programs_are_errors_of_compiling():
    with pytest.raises(CompileError):
        load_mlir(spelled(F), FILE, Place(parse_device_flags(("a=@b",)), automatic=False))
