"""Plans: which regions a placed function falls into, in which order they run, and what moves between them."""

from __future__ import annotations

import random
import time

import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.placement.modules import DEVICES, FILE, spelled

from motet.artifact.schema import Plan
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import DEVICE, Program
from motet.compiler.placement.place import Place
from motet.compiler.targets.device_flags import parse_device_flags

NAMES = "abc"


def loaded(text: str, flags: tuple[str, ...] = ()) -> Program:
    return load_mlir(spelled(DEVICES + text), FILE, Place(parse_device_flags(flags), automatic=False))


def plan_of(text: str) -> Plan:
    placement = loaded(text).placement
    assert placement is not None
    return placement.plans["f"]


def steps(plan: Plan) -> list[str]:
    """Steps as `device(operands)=results`, transfers with `>`, queues behind `#`."""
    return [
        f"{'>' if step.op == 'transfer' else ''}{NAMES[step.device]}{step.operands}={step.results}"
        + (f"#{step.queues}" if step.queues else "")
        for step in plan.steps
    ]


CASES = {
    "one device": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T %1 = math.tanh %0 : $T return %1 : $T }",
        ["a[0]=[1]"], [1],
    ),
    "one after the other": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T %1 = math.tanh %0 {$on $B} : $T return %1 : $T }",
        ["a[0]=[1]", ">b[1]=[2]", "b[2]=[3]"], [3],
    ),
    "independent work on two devices": (
        "func.func @f(%x: $T, %y: $T {$pin $B}) -> ($T, $T) { %0 = math.exp %x : $T %1 = math.exp %y : $T "
        "%2 = math.tanh %0 : $T %3 = math.tanh %1 : $T return %2, %3 : $T, $T }",
        ["a[0]=[2]", "b[1]=[3]"], [2, 3],
    ),
    "a device that others wait for in between": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T %1 = math.tanh %0 {$on $B} : $T "
        "%2 = math.sqrt %1 {$on $A} : $T %3 = arith.addf %2, %0 : $T return %3 : $T }",
        ["a[0]=[1]", ">b[1]=[2]", "b[2]=[3]", ">a[3]=[4]", "a[4, 1]=[5]"], [5],
    ),
    "queues of one device that wait for each other": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on #hal.device.affinity<@a, [0]>} : $T "
        "%1 = math.tanh %0 {$on #hal.device.affinity<@a, [1]>} : $T "
        "%2 = math.sqrt %1 {$on #hal.device.affinity<@a, [0]>} : $T return %2 : $T }",
        ["a[0]=[1]#1", "a[1]=[2]#2", "a[2]=[3]#1"], [3],
    ),
    "independent work on two queues": (
        "func.func @f(%x: $T) -> ($T, $T) { %0 = math.exp %x {$on #hal.device.affinity<@a, [0]>} : $T "
        "%1 = math.tanh %x {$on #hal.device.affinity<@a, [5]>} : $T return %0, %1 : $T, $T }",
        ["a[0]=[1]#1", "a[0]=[2]#32"], [1, 2],
    ),
    "an argument that is returned": (
        "func.func @f(%x: $T) -> ($T, $T {$pin $B}) { return %x, %x : $T, $T }",
        [">b[0]=[1]"], [0, 1],
    ),
    "a constant that is returned": (
        "func.func @f() -> ($T {$pin $A}) { %c = arith.constant dense<[1., 2., 3., 4.]> : $T return %c : $T }",
        ["a[]=[0]"], [0],
    ),
    "memory that is read in place": (
        "func.func @f(%x: $T) -> $T attributes {} { %0 = math.exp %x : $T %1 = math.tanh %0 {$on $C} : $T "
        "%2 = math.sqrt %1 {$on $A} : $T return %2 : $T }",
        ["a[0]=[1]", ">c[1]=[2]", "c[2]=[3]", ">a[3]=[4]", "a[4]=[5]"], [5],
    ),
}


@pytest.mark.parametrize(("text", "expected", "results"), CASES.values(), ids=CASES.keys())
def test_a_function_is_a_plan_over_regions(text: str, expected: list[str], results: list[int]):
    plan = plan_of(text)
    assert steps(plan) == expected
    assert plan.results == results


def test_what_is_read_in_place_keeps_its_order():
    links = ", ".join(f"(@{a} -> @{b} = {{transparent_access = true}})" for a in NAMES for b in NAMES if a != b)
    text = (
        f"module attributes {{stream.topology = #hal.device.topology<links = [{links}]>}} {{ {DEVICES} "
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T %1 = math.tanh %0 {$on $B} : $T "
        "%2 = math.sqrt %1 {$on $A} : $T return %2 : $T } }"
    )
    placement = load_mlir(spelled(text), FILE, Place((), automatic=False)).placement
    assert placement is not None
    assert steps(placement.plans["f"]) == ["a[0]=[1]", "b[1]=[2]", "a[2]=[3]"]
    assert len(placement.links) == 6


def test_where_arguments_and_results_lie_is_in_the_plan():
    plan = plan_of(
        "func.func @f(%x: $T {$pin $C}, %y: $T) -> ($T, $T {$pin $B}, $T) { %0 = math.exp %x : $T "
        "%1 = math.tanh %y : $T %2 = math.sqrt %1 : $T return %0, %1, %2 : $T, $T, $T }"
    )
    assert (plan.input_devices, plan.result_devices) == ([2, 0], [2, 1, 0])


def test_destinations_lie_where_their_arguments_do():
    placement = loaded(
        "func.func @f(%x: memref<4xf32>, %y: memref<4xf32> {$pin $B}) { "
        "linalg.exp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) return }"
    ).placement
    assert placement is not None
    plan = placement.plans["f"]
    assert (plan.input_devices, plan.result_devices) == ([0, 1], [1])
    assert [step.device for step in plan.steps if step.op == "run"] == [1]


def test_regions_say_their_device_and_nothing_of_devices_is_left():
    program = loaded(
        "func.func @f(%x: $T) -> $T { %c = arith.constant dense<[1., 2., 3., 4.]> : $T %0 = arith.addf %x, %c : $T "
        "%1 = arith.mulf %0, %c {$on $B} : $T return %1 : $T }"
    )
    functions = [entry.operation for entry in program.module.body.operations]
    assert [ir.StringAttr(function.attributes[DEVICE]).value for function in functions] == ["a", "b"]
    text = str(program.module)
    assert "motet.affinity" not in text and "motet.transfer" not in text and "hal." not in text
    assert text.count("dense<[1.000000e+00, 2.000000e+00") == 2, "a constant is made in each region that reads it"


def test_operations_that_are_lowered_before_run_where_they_say():
    placement = loaded(
        "func.func @f(%x: $T) -> $T { %0 = tosa.exp %x : ($T) -> $T "
        "%1 = tosa.tanh %0 {$on $B} : ($T) -> $T return %1 : $T }"
    ).placement
    assert placement is not None
    assert steps(placement.plans["f"]) == ["a[0]=[1]", ">b[1]=[2]", "b[2]=[3]"]


def test_regions_have_names_of_their_own():
    program = loaded(
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T } "
        "func.func @f_region_0(%x: $T) -> $T { %0 = math.tanh %x {$on $B} : $T return %0 : $T }"
    )
    assert program.placement is not None
    plans = program.placement.plans
    names = [step.region for plan in plans.values() for step in plan.steps if step.op == "run"]
    assert len(set(names)) == 2 and set(plans) == {"f", "f_region_0"}
    text = str(program.module)
    assert all(f"func.func @{name}(" in text for name in names)


# -- any function ----------------------------------------------------------------------------------


def random_function(seed: int, count: int, placed: float) -> str:
    """Operations over earlier values; a part of them says a device, some of these with queues."""
    choose = random.Random(seed)
    lines = ["func.func @f(%v0: $T, %v1: $T {$pin $B}) -> ($T, $T) {"]
    for number in range(2, count):
        first, second = choose.randrange(max(0, number - 7), number), choose.randrange(number)
        kind = choose.random()
        if kind < 0.15:
            lines.append(f"%v{number} = $move %v{first} : $T to ${choose.choice('ABC')}")
            continue
        where = ""
        if kind < 0.15 + placed:
            queues = choose.choice(["", "", f", [{choose.randrange(3)}]"])
            where = f" {{$on #hal.device.affinity<@{choose.choice(NAMES)}{queues}>}}"
        lines.append(f"%v{number} = arith.addf %v{first}, %v{second}{where} : $T")
    lines.append(f"return %v{count - 1}, %v{choose.randrange(count)} : $T, $T }}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(20))
def test_every_step_finds_what_it_reads_on_its_device(seed: int):
    plan = plan_of(random_function(seed, 40, 0.4))
    lying = dict(zip(plan.inputs, plan.input_devices, strict=True))
    for step in plan.steps:
        assert all(operand in lying for operand in step.operands), "a value is read before it is made"
        if step.op == "run":
            assert all(lying[operand] == step.device for operand in step.operands)
        for result in step.results:
            assert result not in lying
            lying[result] = step.device
    assert all(result in lying for result in plan.results)
    assert len(lying) == plan.values


def test_a_graph_of_3000_operations_is_placed_at_once():
    text = random_function(1, 3000, 0.3)
    start = time.process_time()
    plan = plan_of(text)
    assert time.process_time() - start < 60  # a tenth of what a quadratic way takes; alone, about 2 seconds
    assert len(plan.steps) > 1000
