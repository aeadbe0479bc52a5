"""Devices of programs and command lines, in every way in which they can be said."""

from __future__ import annotations

import logging

import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.placement.modules import FILE, read, spelled

from motet.artifact.device_flags import print_alternative
from motet.artifact.schema import Link
from motet.compiler.ir.program import Placement
from motet.compiler.placement.place import Place
from motet.compiler.placement.read_devices import devices_of
from motet.compiler.targets.device_flags import parse_device_flags

F = "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T }"
CPU = 'util.global private @cpu = #hal.device.alias<"local"> : !hal.device\n'
GPU = 'util.global private @gpu = #hal.device.select<[#hal.device.alias<"hip">, #hal.device.fallback<@cpu>]>\n'


def said(text: str, *flags: str) -> list[str]:
    """Devices as `name=alternative,…`, the default one with a star."""
    module = read(spelled(text), flags)
    with module.context:
        devices, default, _ = devices_of(module)
    return [
        ("*" if index == default else "") + f"{device.name}={','.join(map(print_alternative, device.alternatives))}"
        for index, device in enumerate(devices)
    ]


# What the program says, what the command line says, and what comes of it.
CASES = {
    "nothing": (F, (), []),
    "one family": (F, ("host",), []),
    "one family with options": (F, ("host{cpu=x86-64-v3}",), []),
    "another family": (F, ("riscv",), []),
    "a name": (F, ("gpu=host",), ["*gpu=host"]),
    "an ordinal": (F, ("host[1]",), ["*__device_0=host[1]"]),
    "alternatives": (F, ("cuda,host",), ["*__device_0=cuda,host"]),
    "two without names": (F, ("local", "local"), ["*__device_0=host", "__device_1=host"]),
    "two with names": (F, ("z=cuda,@a", "a=local-task"), ["*z=cuda,@a", "a=host"]),
    "an ordinal of any family": (F, ("a=[2],host",), ["*a=[2],host"]),
    "an alternative twice": (F, ("a=host,local,llvm-cpu,host[0]",), ["*a=host,host[0]"]),
    "an attribute": (F, ('a=#hal.device.select<[#hal.device.alias<"hip"[1]>]>,host',), ["*a=hip[1],host"]),
    "the program's own": (CPU + GPU + F, (), ["*cpu=host", "gpu=hip,@cpu"]),
    "the program's own, for other processors": (CPU + GPU + F, ("host",), ["*cpu=host", "gpu=hip,@cpu"]),
    "a flag replaces": (CPU + GPU + F, ("gpu=cuda[1],@cpu",), ["*cpu=host", "gpu=cuda[1],@cpu"]),
    "a flag adds what a device falls back to": (CPU + F, ("cpu=hip,@n", "n=null"), ["*cpu=hip,@n", "n=null"]),
    "flags without names fill": (CPU + GPU + F, ("null", "cuda"), ["*cpu=null", "gpu=cuda"]),
    "flags without names fill the default one first": (
        f'module attributes {{hal.device.default = "gpu"}} {{ {CPU + GPU + F} }}', ("null",),
        ["cpu=host", "*gpu=null"],
    ),
    "a default that a flag adds": (
        f'module attributes {{hal.device.default = "npu"}} {{ {CPU + F} }}', ("npu=null",), ["cpu=host", "*npu=null"],
    ),
    "a default by the number of a flag": (
        f"module attributes {{hal.device.default = 1 : i64}} {{ {F} }}", ("a=null", "b=host"), ["a=null", "*b=host"],
    ),
    "a default by symbol": (
        f"module attributes {{hal.device.default = @gpu}} {{ {CPU + GPU + F} }}", (), ["cpu=host", "*gpu=hip,@cpu"],
    ),
    "targets as a list": (
        'module attributes {hal.device.targets = [#hal.device.target<"local", {ordinal = 1 : index}>, '
        f'[#hal.device.alias<"cuda">, #hal.device.ordinal<0>]]}} {{ {F} }}', (),
        ["*__device_0=host[1]", "__device_1=cuda,[0]"],
    ),
    "targets by name": (
        'module attributes {hal.device.targets = {b = #hal.device.alias<"local">, '
        f'a = [#hal.device.alias<"cuda">, #hal.device.fallback<@b>]}}}} {{ {F} }}', (), ["*b=host", "a=cuda,@b"],
    ),
    "targets beside globals": (
        f'module attributes {{hal.device.targets = {{b = #hal.device.alias<"null">}}}} {{ {CPU + F} }}', (),
        ["*b=null", "cpu=host"],
    ),
    "a promise of a flag's device": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to #hal.device.promise<@__device_1> return %0 : $T }",
        ("local", "null"), ["*__device_0=host", "__device_1=null"],
    ),
    "names in quotes": (
        'util.global private @"my.gpu-1" = #hal.device.alias<"cuda"> : !hal.device\n'
        'func.func @f(%x: $T {$pin #hal.device.affinity<@"my.gpu-1">}) -> $T { return %x : $T }', (),
        ["*my.gpu-1=cuda"],
    ),
    "Motet's own": (
        '"motet.device"() {sym_name = "a", alternatives = ["local[1]", "@b"]} : () -> ()\n'
        '"motet.device"() {sym_name = "b", alternatives = ["dylib"]} : () -> ()\n' + F, (), ["*a=host[1],@b", "b=host"],
    ),
}


@pytest.mark.parametrize(("text", "flags", "expected"), CASES.values(), ids=CASES.keys())
def test_devices_are_those_that_are_named(text: str, flags: tuple[str, ...], expected: list[str]):
    assert said(text, *flags) == expected


def placement_of(text: str, *flags: str) -> Placement | None:
    return load_mlir(spelled(text), FILE, Place(parse_device_flags(flags), automatic=False)).placement


@pytest.mark.parametrize("flags", [(), ("host",), ("host{cpu=x86-64-v3+x86-64-v4}",)])
def test_programs_that_say_nothing_of_devices_stay_as_they_are(flags: tuple[str, ...]):
    program = load_mlir(spelled(F), FILE, Place(parse_device_flags(flags), automatic=False))
    assert program.placement is None
    assert str(program.module) == str(load_mlir(spelled(F), FILE).module)


def test_links_are_read():
    module = read(spelled(
        "module attributes {stream.topology = #hal.device.topology<links = [(@cpu -> @gpu = {unified_memory = true}), "
        f"(@gpu -> @cpu = {{transparent_access = true, unified_memory = false}})]>}} {{ {CPU + GPU + F} }}"
    ))
    with module.context:
        assert devices_of(module)[2] == [Link("cpu", "gpu", False, True), Link("gpu", "cpu", True, False)]


def test_files_of_devices_alone_are_read():
    placement = placement_of(CPU + GPU)
    assert placement is not None
    assert [device.name for device in placement.devices] == ["cpu", "gpu"]
    assert placement.plans == {}


def test_what_is_read_and_not_followed_is_said(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "motet"):
        placement_of(
            'util.global private @a = #hal.device.alias<"llvm-cpu"> : !hal.device\n'
            'util.global private @b = #hal.device.select<[#hal.device.target<"tpu">, #hal.device.target<"local", '
            '[#hal.executable.target<"llvm-cpu", "elf", {cpu = "znver4"}>]>]> : !hal.device\n' + F
        )
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        f"{FILE}:1:26: device name 'llvm-cpu' is deprecated",
        f"{FILE}:2:26: device target 'tpu': no such family",
        f"{FILE}:2:26: device 'local': its cpu is not taken from the program",
    ]


def test_devices_are_read_once_and_again():
    function = "func.func @f(%x: $T {$pin #hal.device.affinity<@gpu, [1]>}) -> $T { return %x : $T }"
    text = str(read(spelled(CPU + GPU + function)))
    assert 'motet.affinity = "gpu[1]"' in text
    assert str(read(text)) == text
