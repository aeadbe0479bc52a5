"""What a model of costs places: what the program says stands, everything else ends as early as it can."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.placement.modules import FILE, spelled
from tests.unit.compiler.placement.scheduling_problems import random_problem

from motet.artifact.schema import Alternative, Link, LogicalDevice, Plan
from motet.compiler.ir._mlir import ir
from motet.compiler.placement.machine import ProgramMachine
from motet.compiler.placement.place import Place
from motet.compiler.placement.place_automatically import solve
from motet.compiler.placement.search.heft import upward_ranks
from motet.compiler.placement.search.problem import Problem, dispatch
from motet.compiler.placement.units import Units, units_of
from motet.compiler.stages import opened
from motet.compiler.targets.device_flags import parse_device_flags
from motet.compiler.targets.rates import DEFAULTS, UNKNOWN, Rates, RateTable, rate_table
from motet.errors import CompileError

# Operations per second such that an operation on each of the four elements takes a second.
PLAIN = Rates(
    contraction=4.0, convolution=4.0, elementwise=4.0, reduction=4.0, generic=4.0, memory=1e12, launch=0.0, submit=0.0,
    upload=1e12, download=1e12, latency=0.1,
)


def rates(**changed: float | bool) -> Rates:
    return rate_table({"host": PLAIN}, {"host": changed}).of("host")


def plan_of(text: str, flags: tuple[str, ...], table: Mapping[str, Rates], name: str = "f") -> Plan:
    place = Place(parse_device_flags(flags), automatic=True, table=RateTable(table))
    placement = load_mlir(spelled(text), FILE, place).placement
    assert placement is not None
    assert placement.automatic
    return placement.plans[name]


def runs(plan: Plan) -> list[int]:
    return [step.device for step in plan.steps if step.op == "run"]


HOST, NULL, OTHER = "a=host", "b=null", "c=null[1]"
SAME = {"host": PLAIN, "null": PLAIN}
CHAIN = "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T %1 = math.tanh %0 : $T return %1 : $T }"
FORK = """func.func @f(%x: $T) -> $T {
  %0 = math.exp %x : $T
  %1 = math.tanh %x : $T
  %2 = arith.subf %0, %1 : $T
  return %2 : $T
}"""


# -- where things go -------------------------------------------------------------------------------


def test_what_is_faster_takes_what_it_is_worth_moving() -> None:
    fast = rates(elementwise=400.0)
    assert runs(plan_of(CHAIN, (HOST, NULL), {"host": rates(shared=True), "null": fast})) == [1]
    far = rates(elementwise=400.0, latency=100.0)
    assert runs(plan_of(CHAIN, (HOST, NULL), {"host": rates(shared=True), "null": far})) == [0]


def test_the_first_device_takes_what_all_do_as_well() -> None:
    assert runs(plan_of(CHAIN, (HOST, NULL, OTHER), {"host": rates(shared=True), "null": PLAIN})) == [0]


def test_a_chain_of_element_wise_work_is_one_unit() -> None:
    # Launches are dear and tanh is a little faster on the other device: not enough to leave what is fused.
    table = {"host": rates(shared=True, launch=5.0), "null": rates(elementwise=4.4, launch=5.0)}
    assert len(runs(plan_of(CHAIN, (HOST, NULL), table))) == 1


def test_inputs_come_from_the_memory_of_the_host_and_results_return_there() -> None:
    # The default device is the one behind the bus; the input is not there.
    table = {"host": rates(shared=True), "null": rates(latency=1.0)}
    assert runs(plan_of(CHAIN, (NULL, HOST), table)) == [1]


def test_nothing_goes_where_no_code_can_be_made() -> None:
    # A device of which nothing is known is thought to be fast, which is no use without code for it.
    text = CHAIN.replace("$T", "tensor<4096x4096xf32>")
    fast = {**DEFAULTS, "metal": rates(elementwise=1e18, upload=1e18, download=1e18, latency=0.0)}
    with pytest.raises(CompileError, match="no code can be made for metal"):
        plan_of(text, ("a=metal", "b=host"), fast)
    table = RateTable(fast, frozenset({"host"}))
    place = Place(parse_device_flags(("a=metal", "b=host")), automatic=True, table=table)
    placement = load_mlir(spelled(text), FILE, place).placement
    assert placement is not None
    assert runs(placement.plans["f"]) == [1]


def test_a_device_is_taken_for_the_first_family_that_has_code() -> None:
    devices = [LogicalDevice("a", [Alternative("cuda"), Alternative("null")])]
    machine = ProgramMachine(devices, [], RateTable({"cuda": rates(memory=1.0), "null": PLAIN}, frozenset({"null"})))
    assert machine.rates == (PLAIN,)


def test_devices_that_share_memory_are_near() -> None:
    devices = [LogicalDevice("a", [Alternative("null", 0)]), LogicalDevice("b", [Alternative("null", 1)])]
    far = ProgramMachine(devices, [], RateTable(SAME)).machine
    near = ProgramMachine(devices, [Link("a", "b", unified_memory=True)], RateTable(SAME)).machine
    assert far.move(0, 1, 100) == pytest.approx(0.2)
    assert near.move(0, 1, 100) == 0.0
    assert near.move(1, 0, 100) == pytest.approx(0.2)


def test_places_of_one_processor_are_not_counted_twice() -> None:
    devices = [
        LogicalDevice("a", [Alternative("host")]), LogicalDevice("b", [Alternative("host")]),
        LogicalDevice("c", [Alternative("null", 1)]), LogicalDevice("d", [Alternative("null", 1)]),
        LogicalDevice("e", [Alternative("null", 2)]), LogicalDevice("f", [Alternative("", None, "e")]),
        LogicalDevice("g", [Alternative("null")]),
    ]
    machine = ProgramMachine(devices, [], RateTable({"host": rates(shared=True), "null": PLAIN}))
    assert machine.machine.processors == (0, 0, 1, 1, 2, 2, 3, None)
    assert machine.machine.move(2, 3, 100) == 0.0
    assert machine.machine.move(0, machine.memory, 100) == 0.0
    assert machine.machine.move(4, machine.memory, 10) == pytest.approx(0.1, rel=1e-6)


def test_each_branch_has_a_device_where_two_are_better_than_one() -> None:
    large = "tensor<64x64xf32>"
    text = f"""func.func @f(%x: {large}, %y: {large}) -> {large} {{
      %c = arith.constant 0.0 : f32
      %e = tensor.empty() : {large}
      %i = linalg.fill ins(%c : f32) outs(%e : {large}) -> {large}
      %0 = linalg.matmul ins(%x, %y : {large}, {large}) outs(%i : {large}) -> {large}
      %1 = linalg.matmul ins(%y, %x : {large}, {large}) outs(%i : {large}) -> {large}
      %2 = linalg.matmul ins(%0, %1 : {large}, {large}) outs(%i : {large}) -> {large}
      return %2 : {large}
    }}"""
    plan = plan_of(text, (NULL, OTHER), SAME)
    assert sorted(runs(plan)) in ([0, 0, 1], [0, 1, 1])


# -- what the program says -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on $C} : $T return %0 : $T }", [2]),
        ("func.func @f(%x: $T) -> $T attributes {$pin $C} { %0 = math.exp %x : $T return %0 : $T }", [2]),
        ("func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $C %1 = math.exp %0 : $T return %1 : $T }", [2]),
        ("func.func @f(%x: $T {$pin $C}) -> ($T {$pin $C}) { %0 = math.exp %x : $T return %0 : $T }", [2]),
    ],
)
def test_what_the_program_says_stands(text: str, expected: list[int]) -> None:
    # Moving is dear, and device a the fastest: nothing but what is said keeps work on c.
    table = {"host": rates(shared=True, elementwise=1e3), "null": rates(latency=50.0)}
    assert runs(plan_of(text, (HOST, NULL, OTHER), table)) == expected


def test_one_of_several_devices_is_chosen_by_cost() -> None:
    text = """func.func @f(%x: $T) -> $T {
      %0 = math.exp %x {$on #hal.device.optimal<[#hal.device.affinity<@b>, #hal.device.affinity<@c>]>} : $T
      return %0 : $T
    }"""
    table = {"host": rates(shared=True, elementwise=1e6), "null": PLAIN, "riscv": rates(elementwise=1e3)}
    assert runs(plan_of(text, (HOST, NULL, "c=riscv"), table)) == [2]


def test_queues_that_the_program_names_are_kept() -> None:
    text = """func.func @f(%x: $T) -> $T {
      %0 = math.exp %x {$on #hal.device.affinity<@b, [1]>} : $T
      %1 = math.tanh %0 {$on #hal.device.affinity<@b, [0]>} : $T
      return %1 : $T
    }"""
    plan = plan_of(text, (HOST, NULL), {"host": rates(shared=True), "null": PLAIN})
    assert [(step.device, step.queues) for step in plan.steps if step.op == "run"] == [(1, 2), (1, 1)]


@pytest.mark.parametrize("seed", range(12))
def test_pinned_operations_stay_whatever_devices_can_do(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(5, 30)
    lines, pinned = [], dict[int, int]()
    for number in range(count):
        said = ""
        if rng.random() < 0.3:
            pinned[number] = rng.randrange(3)
            said = f" {{$on ${'ABC'[pinned[number]]}}}"
        left, right = (f"%v{rng.randrange(number)}" if number else "%x" for _ in range(2))
        lines.append(f"%v{number} = arith.addf {left}, {right}{said} : $T")
    body = "\n".join(lines)
    # Each operation is returned, so that each is the result of a region on its device.
    returned, kinds = (", ".join(each) for each in zip(*((f"%v{n}", "$T") for n in range(count)), strict=True))
    text = f"func.func @f(%x: $T) -> ({kinds}) {{ {body} return {returned} : {kinds} }}"
    table = {
        "host": rates(shared=True, elementwise=rng.choice([1.0, 40.0])),
        "null": rates(elementwise=rng.choice([1.0, 40.0]), latency=rng.choice([0.01, 1.0])),
    }
    plan = plan_of(text, (HOST, NULL, OTHER), table)
    made = {value: step.device for step in plan.steps if step.op == "run" for value in step.results}
    for number, device in pinned.items():
        assert made[plan.results[number]] == device


# -- never worse -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_no_plan_ends_later_than_everything_on_one_device(seed: int) -> None:
    rng = random.Random(seed)
    devices = [LogicalDevice("a", [Alternative("host")]), LogicalDevice("b", [Alternative("null")])]
    table = RateTable({
        "host": rates(shared=True, submit=rng.choice([0.0, 2.0])),
        "null": rates(latency=rng.choice([0.0, 1.0]), submit=rng.choice([0.0, 2.0])),
    })
    machine = ProgramMachine(devices, [], table)
    work = rng.choice([4, 10, 60])
    tasks = random_problem(rng, work=work, places=2, density=3 / work).tasks
    problem = Problem(tasks, machine.cut_machine)
    _, staging = solve(problem, machine)
    assert staging.makespan <= min(_alone(Problem(tasks, machine.machine), device, table) for device in (0, 1)) + 1e-9


def _alone(problem: Problem, device: int, table: RateTable) -> float:
    """When everything ends that can be on one device, submitted at once; infinite where something has to be on the
    other one too."""
    if any(device not in allowed for allowed, task in zip(problem.allowed, problem.tasks, strict=True)
           if not task.outside):
        return float("inf")
    places = [device if device in allowed else allowed[0] for allowed in problem.allowed]
    tasks = problem.tasks
    arrivals = [
        problem.machine.move(places[source], device, size)
        for task in tasks if not task.outside for source, size in task.inputs if tasks[source].outside
    ]
    total = sum(task.times[device] for task in tasks if not task.outside)
    submit = table.of("host" if device == 0 else "null").submit
    back = [
        problem.machine.move(device, places[index], size)
        for index, task in enumerate(tasks) if task.outside for _, size in task.inputs
    ]
    return max(arrivals, default=0.0) + submit + total + max(back, default=0.0)


def test_all_on_one_place_is_what_dispatch_says() -> None:
    problem = random_problem(random.Random(0), work=10, places=1, density=0.3)
    schedule = dispatch(problem, [allowed[0] for allowed in problem.allowed], upward_ranks(problem))
    assert schedule.makespan >= sum(task.times[0] for task in problem.tasks if not task.outside)


# -- units -----------------------------------------------------------------------------------------


def units(text: str) -> Units:
    program = load_mlir(spelled(text), FILE)
    with program.module.context, ir.Location.unknown():
        return units_of(program.module.body.operations[0].operation, lambda operation: "")


def test_a_product_takes_what_follows_it_element_by_element() -> None:
    found = units("""func.func @f(%x: tensor<3x5xf32>, %y: tensor<5x7xf32>, %b: tensor<7xf32>) -> tensor<3x7xf32> {
      %c = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<3x7xf32>
      %i = linalg.fill ins(%c : f32) outs(%e : tensor<3x7xf32>) -> tensor<3x7xf32>
      %0 = linalg.matmul ins(%x, %y : tensor<3x5xf32>, tensor<5x7xf32>) outs(%i : tensor<3x7xf32>) -> tensor<3x7xf32>
      %1 = linalg.broadcast ins(%b : tensor<7xf32>) outs(%e : tensor<3x7xf32>) dimensions = [0]
      %2 = linalg.add ins(%0, %1 : tensor<3x7xf32>, tensor<3x7xf32>) outs(%e : tensor<3x7xf32>) -> tensor<3x7xf32>
      %3 = linalg.max ins(%2, %i : tensor<3x7xf32>, tensor<3x7xf32>) outs(%e : tensor<3x7xf32>) -> tensor<3x7xf32>
      return %3 : tensor<3x7xf32>
    }""")
    (unit,) = found.units
    assert unit.kind == "contraction"
    assert unit.arithmetic["contraction"] == 2 * 3 * 5 * 7
    assert unit.arithmetic["elementwise"] == 2 * 3 * 7
    assert unit.moved == 4 * (3 * 5 + 5 * 7 + 7 + 3 * 7)
    assert found.returned == [(0, None, 4 * 3 * 7)]


def test_softmax_is_one_unit() -> None:
    rows = "affine_map<(i, j) -> (i)>"
    same = "affine_map<(i, j) -> (i, j)>"
    found = units(f"""func.func @f(%x: tensor<6x9xf32>) -> tensor<6x9xf32> {{
      %c = arith.constant 0.0 : f32
      %r = tensor.empty() : tensor<6xf32>
      %e = tensor.empty() : tensor<6x9xf32>
      %i = linalg.fill ins(%c : f32) outs(%r : tensor<6xf32>) -> tensor<6xf32>
      %0 = linalg.generic {{indexing_maps = [{same}, {rows}], iterator_types = ["parallel", "reduction"]}}
          ins(%x : tensor<6x9xf32>) outs(%i : tensor<6xf32>) {{
        ^bb0(%a: f32, %o: f32): %m = arith.maximumf %a, %o : f32 linalg.yield %m : f32 }} -> tensor<6xf32>
      %1 = linalg.generic {{indexing_maps = [{same}, {rows}, {same}], iterator_types = ["parallel", "parallel"]}}
          ins(%x, %0 : tensor<6x9xf32>, tensor<6xf32>) outs(%e : tensor<6x9xf32>) {{
        ^bb0(%a: f32, %b: f32, %o: f32): %s = arith.subf %a, %b : f32 %p = math.exp %s : f32
          linalg.yield %p : f32 }} -> tensor<6x9xf32>
      %2 = linalg.generic {{indexing_maps = [{same}, {rows}], iterator_types = ["parallel", "reduction"]}}
          ins(%1 : tensor<6x9xf32>) outs(%i : tensor<6xf32>) {{
        ^bb0(%a: f32, %o: f32): %m = arith.addf %a, %o : f32 linalg.yield %m : f32 }} -> tensor<6xf32>
      %3 = linalg.generic {{indexing_maps = [{same}, {rows}, {same}], iterator_types = ["parallel", "parallel"]}}
          ins(%1, %2 : tensor<6x9xf32>, tensor<6xf32>) outs(%e : tensor<6x9xf32>) {{
        ^bb0(%a: f32, %b: f32, %o: f32): %s = arith.divf %a, %b : f32 linalg.yield %s : f32 }} -> tensor<6x9xf32>
      return %3 : tensor<6x9xf32>
    }}""")
    (unit,) = found.units
    assert unit.kind == "reduction"
    assert unit.moved == 2 * 4 * 6 * 9


def test_units_that_need_each_other_stay_apart() -> None:
    # The sum may not join the first product: the second one would then wait for itself.
    kind = "tensor<8x8xf32>"
    found = units(f"""func.func @f(%x: {kind}) -> {kind} {{
      %c = arith.constant 0.0 : f32
      %e = tensor.empty() : {kind}
      %i = linalg.fill ins(%c : f32) outs(%e : {kind}) -> {kind}
      %0 = linalg.matmul ins(%x, %x : {kind}, {kind}) outs(%i : {kind}) -> {kind}
      %1 = linalg.matmul ins(%0, %x : {kind}, {kind}) outs(%i : {kind}) -> {kind}
      %2 = linalg.add ins(%0, %1 : {kind}, {kind}) outs(%e : {kind}) -> {kind}
      return %2 : {kind}
    }}""")
    assert [len(unit.operations) for unit in found.units] == [1, 2]
    assert found.units[1].reads == {0: 4 * 64}  # one value, whoever reads it


def test_loops_count_as_often_as_they_run() -> None:
    found = units("""func.func @f(%x: tensor<16xf32>) -> tensor<16xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c10 = arith.constant 10 : index
      %0 = scf.for %i = %c0 to %c10 step %c1 iter_args(%a = %x) -> (tensor<16xf32>) {
        %e = tensor.empty() : tensor<16xf32>
        %1 = linalg.exp ins(%a : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
        scf.yield %1 : tensor<16xf32>
      }
      return %0 : tensor<16xf32>
    }""")
    (unit,) = found.units
    assert unit.kind == "generic"
    assert 10 * 16 <= unit.arithmetic["generic"] <= 10 * 16 * 20


def test_what_is_not_known_has_no_estimate() -> None:
    text = """func.func @f(%x: tensor<?x4xf32>, %y: $T) -> (tensor<?x4xf32>, $T) {
      %0 = math.exp %x {$on $A} : tensor<?x4xf32>
      %1 = math.exp %y {$on $B} : $T
      return %0, %1 : tensor<?x4xf32>, $T
    }"""
    plan = plan_of(text, (HOST, NULL), {"host": rates(shared=True), "null": PLAIN})
    estimates = {(step.op, step.device): step.seconds for step in plan.steps}
    assert estimates["run", 0] is None
    # Four elements, at four operations a second, twelve operations for exp.
    assert estimates["run", 1] == pytest.approx(12.0, rel=1e-6)
    assert estimates["transfer", 1] == pytest.approx(0.1, rel=1e-6)


def test_a_plan_is_estimated_with_its_devices_at_work_at_the_same_time() -> None:
    text = """func.func @f(%x: $T, %y: $T) -> $T {
      %0 = math.exp %x {$on $A} : $T
      %1 = math.exp %y {$on $B} : $T
      %2 = arith.addf %0, %1 {$on $A} : $T
      return %2 : $T
    }"""
    plan = plan_of(text, (HOST, NULL), {"host": rates(shared=True), "null": PLAIN})
    # On b from 0.1 to 12.1, while a is done at 12; the sum waits for what comes back.
    assert plan.seconds == pytest.approx(0.1 + 12 + 0.1 + 1, rel=1e-6)


# -- rates -----------------------------------------------------------------------------------------


def test_a_file_changes_what_it_says_and_no_more() -> None:
    own = rates(memory=7.0)
    table = rate_table({"npu": own}, {"host": {"memory": 5.0}, "new": {"launch": 3.0}})
    assert table.of("host").memory == 5.0
    assert table.of("host").contraction == DEFAULTS["host"].contraction
    assert table.of("npu") == own
    assert table.of("new").launch == 3.0
    assert table.of("new").memory == UNKNOWN.memory
    assert table.of("whatever") == UNKNOWN


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_three_thousand_operations_are_placed_in_time() -> None:
    rng = random.Random(0)
    kind = "tensor<256x256xf32>"
    lines: list[str] = []
    values = ["%x", "%y"]
    for number in range(3000):
        left, right = rng.sample(values[-6:], 2)
        operands = f"ins({left}, {right} : {kind}, {kind})"
        name, out = rng.choice([("matmul", "%i"), ("add", "%e"), ("sub", "%e")])
        lines.append(f"%v{number} = linalg.{name} {operands} outs({out} : {kind}) -> {kind}")
        values.append(f"%v{number}")
        values = values if len(values) < 8 else values[1:]
    kept = ", ".join(values)
    kinds = ", ".join([kind] * len(values))
    body = "\n".join(lines)
    text = f"""func.func @f(%x: {kind}, %y: {kind}) -> ({kinds}) {{
      %c = arith.constant 0.0 : f32
      %e = tensor.empty() : {kind}
      %i = linalg.fill ins(%c : f32) outs(%e : {kind}) -> {kind}
      {body}
      return {kept} : {kinds}
    }}"""
    with opened(text, FILE) as program:
        begin = time.process_time()
        Place(parse_device_flags((HOST, NULL, OTHER)), automatic=True).run(program)
        assert time.process_time() - begin < 60  # about one alone on a core; a quadratic way takes minutes
        assert program.placement is not None
