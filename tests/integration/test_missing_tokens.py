"""Operations of the dialect gpu that use memory in flight without waiting for it: a warning, or an error; and those
that wait for more than they need, which --prove lists."""

from __future__ import annotations

import itertools
import json
import logging
import random
import re
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import Run
from tests.prepared import load_mlir

import motet
from motet.compiler.frontends.gpu.listed_waits import list_waits
from motet.compiler.job import ListedWait
from motet.compiler.stages import opened, optimise
from motet.errors import CompileError, OptionError

FILE = "test.mlir"


def program(body: str) -> str:
    """@main, whose body begins in line 15. `launch [TOKENS] A B` is a launch that doubles A's numbers into B."""
    lines = [_spelled(line) for line in body.strip().splitlines()]
    return """module attributes {gpu.container_module} {
gpu.module @k {
  gpu.func @double(%x: memref<9xf32>, %y: memref<9xf32>) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<9xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %y[%i] : memref<9xf32>
    gpu.return
  }
}
func.func @main(%x: memref<9xf32>, %y: memref<9xf32>, %z: memref<9xf32>) {
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %t0 = gpu.wait async
""" + "\n".join(lines) + "\nreturn\n}\n}\n"


def _spelled(line: str) -> str:
    made, launch, rest = line.strip().partition("launch ")
    if not launch:
        return made
    *tokens, source, target = rest.split()
    start = f"gpu.launch_func {' '.join(tokens)} @k::@double blocks in (%c1, %c1, %c1) threads in (%c9, %c1, %c1)"
    return f"{made}{start} args({source} : memref<9xf32>, {target} : memref<9xf32>)"


WRONG = {
    "a read": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t0] %y %z
        gpu.wait [%t1, %t2]""", 16, "gpu.launch_func: it reads memory that gpu.launch_func at test.mlir:15:", "writes"),
    "a write of what is read": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t0] %z %x
        gpu.wait [%t1, %t2]""", 16, "it writes memory that gpu.launch_func at test.mlir:15:", "reads"),
    "two writes": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t0] %z %y
        gpu.wait [%t1, %t2]""", 16, "it writes memory that gpu.launch_func at test.mlir:15:", "writes"),
    "the token of another": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = gpu.wait async
        %t3 = launch async[%t2] %y %z
        gpu.wait [%t1, %t3]""", 17, "it reads memory that gpu.launch_func at test.mlir:15:", "writes"),
    "a copy": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = gpu.memcpy async [%t0] %z, %y : memref<9xf32>, memref<9xf32>
        gpu.wait [%t1, %t2]""", 16, "gpu.memcpy: it reads memory that gpu.launch_func at test.mlir:15:", "writes"),
    "the host": ("""
        %t1 = launch async[%t0] %x %y
        memref.copy %y, %z : memref<9xf32> to memref<9xf32>
        gpu.wait [%t1]""", 16, "memref.copy: it reads memory that gpu.launch_func at test.mlir:15:", "writes"),
    "a launch that does not wait": ("""
        %t1 = launch async[%t0] %x %y
        launch  %y %z
        gpu.wait [%t1]""", 16, "it reads memory that gpu.launch_func at test.mlir:15:", "writes"),
    "a launch in a loop": ("""
        %t1 = launch async[%t0] %x %y
        scf.for %i = %c1 to %c9 step %c9 {
        launch  %y %z
        }
        gpu.wait [%t1]""", 17, "it reads memory that gpu.launch_func at test.mlir:15:", "writes"),
    "another stream": ("""
        %s = gpu.wait async
        launch <%t0 : !gpu.async.token> %x %y
        launch <%s : !gpu.async.token> %y %z
        gpu.wait [%s, %t0]""", 17, "it reads memory that gpu.launch_func at test.mlir:16:", "writes"),
    "the host, which does not wait for the stream": ("""
        launch <%t0 : !gpu.async.token> %x %y
        memref.copy %y, %z : memref<9xf32> to memref<9xf32>
        gpu.wait [%t0]""", 16, "memref.copy: it reads memory that gpu.launch_func at test.mlir:15:", "writes"),
}
RIGHT = {
    "its token": """
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t1] %y %z
        gpu.wait [%t2]""",
    "a token that implies it": """
        %t1 = launch async[%t0] %x %y
        %t2 = gpu.wait async [%t1]
        %t3 = launch async[%t2] %x %z
        %t4 = launch async[%t3] %y %z
        gpu.wait [%t4]""",
    "the host waits": """
        %t1 = launch async[%t0] %x %y
        gpu.wait [%t1]
        %t2 = launch async[%t0] %y %z
        gpu.wait [%t2]""",
    "a launch that ends before the next operation": """
        launch  %x %y
        %t2 = launch async[%t0] %y %z
        gpu.wait [%t2]""",
    "the same stream": """
        launch <%t0 : !gpu.async.token> %x %y
        launch <%t0 : !gpu.async.token> %y %z
        gpu.wait [%t0]
        memref.copy %z, %y : memref<9xf32> to memref<9xf32>""",
    "both only read": """
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t0] %x %z
        gpu.wait [%t1, %t2]""",
    "a wait in a loop": """
        %t1 = launch async[%t0] %x %y
        scf.for %i = %c1 to %c9 step %c9 {
        gpu.wait [%t1]
        launch  %y %z
        }
        memref.copy %y, %x : memref<9xf32> to memref<9xf32>""",
}


@pytest.mark.parametrize("name", WRONG)
def test_an_operation_that_waits_for_too_little_is_named_with_the_other(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    body, line, text, did = WRONG[name]
    with caplog.at_level(logging.WARNING, "motet"):
        load_mlir(program(body), FILE)
    [message] = caplog.messages
    assert message.startswith(f"{FILE}:{line}:")
    assert text in message
    assert f" {did}, and waits for no token of it; " in message


@pytest.mark.parametrize("name", RIGHT)
def test_operations_that_wait_are_not_warned_of(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "motet"):
        load_mlir(program(RIGHT[name]), FILE)
    assert caplog.messages == []


def test_missing_tokens_are_errors_if_they_are_strict() -> None:
    body = WRONG["a read"][0]
    with pytest.raises(CompileError, match=r"it reads memory that gpu.launch_func at .*:15:7 writes") as caught:
        motet.compile(program(body), options={"tokens": "strict"})
    assert caught.value.location is not None and caught.value.location.line == 16
    x, y, z = np.arange(9, dtype=np.float32), np.zeros(9, np.float32), np.zeros(9, np.float32)
    for text, how in ((body, "repair"), (RIGHT["its token"], "strict")):
        with motet.load(motet.compile(program(text), options={"tokens": how})) as session:
            session(x, y, z)
            np.testing.assert_array_equal(z, 4 * x)
    with pytest.raises(OptionError, match="option tokens=maybe: expected repair or strict"):
        motet.compile(program(body), options={"tokens": "maybe"})


@pytest.mark.parametrize("stream", ["%t0 : !gpu.async.token", "%p : !llvm.ptr", "%q : !llvm.ptr"])
def test_launches_on_streams_run_in_order(stream: str) -> None:
    body = f"launch <{stream}> %x %y\nlaunch <{stream}> %y %z"
    text = program(body).replace("@main(", "@main(%p: !llvm.ptr, ")
    text = text.replace("%z: memref<9xf32>)", "%z: memref<9xf32>, %q: !llvm.ptr)")
    x, y, z = np.arange(9, dtype=np.float32), np.zeros(9, np.float32), np.zeros(9, np.float32)
    with motet.load(motet.compile(text, options={"tokens": "strict"})) as session:
        session(x, y, z)  # streams are the runtime's, and no arguments
    np.testing.assert_array_equal(z, 4 * x)


def test_a_launch_with_its_body_may_be_on_a_stream() -> None:
    text = """func.func @main(%x: memref<9xf32>, %y: memref<9xf32>, %s: !llvm.ptr) {
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  gpu.launch <%s : !llvm.ptr> blocks(%a, %b, %c) in (%d = %c1, %e = %c1, %f = %c1)
      threads(%i, %j, %k) in (%l = %c9, %m = %c1, %n = %c1) {
    %v = memref.load %x[%i] : memref<9xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %y[%i] : memref<9xf32>
    gpu.terminator
  }
  return
}
"""
    x, y = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
    with motet.load(motet.compile(text)) as session:
        session(x, y)
    np.testing.assert_array_equal(y, 2 * x)


# Bodies, and for each wait that is not needed the line, that of the operation waited for, and that of the host's wait
# that must name its token instead.
NOT_NEEDED = {
    "a chain": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t1] %x %z
        gpu.wait [%t2]""", [(16, 15, 17)]),
    "a token next to the one that implies it": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t1] %y %z
        %t3 = gpu.memset async [%t1, %t2] %z, %c0 : memref<9xf32>, f32
        gpu.wait [%t3]""", [(17, 15, None)]),
    "tokens that are joined for several": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t0] %x %z
        %both = gpu.wait async [%t1, %t2]
        %t3 = launch async[%both] %x %y
        gpu.wait [%t2, %t3]""", [(18, 16, None)]),
    "the host's wait": ("""
        %t1 = launch async[%t0] %x %y
        gpu.wait [%t1]
        %t2 = launch async[%t0] %x %z
        gpu.wait [%t1, %t2]""", [(16, 15, None)]),
    "in a loop": ("""
        scf.for %i = %c1 to %c9 step %c9 {
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t1] %x %z
        gpu.wait [%t2]
        }""", [(17, 16, 18)]),
    "chains of chains": ("""
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t1] %x %z
        %t3 = launch async[%t2] %x %z
        gpu.wait [%t3]""", [(16, 15, 18)]),
}
NEEDED = {
    "the only order of two others": """
        %t1 = launch async[%t0] %x %y
        %t2 = launch async[%t1] %x %z
        %t3 = launch async[%t2] %y %y
        gpu.wait [%t3]""",
    "memory that is allocated and freed": """
        %m, %t1 = gpu.alloc async [%t0] () : memref<9xf32>
        %t2 = launch async[%t1] %x %m
        %t3 = gpu.dealloc async [%t2] %m : memref<9xf32>
        gpu.wait [%t3]""",
    "what the host reads": """
        %t1 = launch async[%t0] %x %y
        gpu.wait [%t1]
        memref.copy %y, %z : memref<9xf32> to memref<9xf32>""",
    "what a loop may use": """
        %t1 = launch async[%t0] %x %y
        gpu.wait [%t1]
        scf.for %i = %c1 to %c9 step %c9 {
        launch  %x %z
        }""",
    "a stream's order": """
        launch <%t0 : !gpu.async.token> %x %y
        launch <%t0 : !gpu.async.token> %x %z
        gpu.wait [%t0]""",
}


def listed(text: str) -> list[ListedWait]:
    with opened(text, FILE) as source:
        return list_waits(source.module)


def line_of(place: str) -> int:
    return int(place.split(":")[1])


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_waits_that_are_not_needed_are_listed_with_both_places(name: str) -> None:
    body, waits = NOT_NEEDED[name]
    found = listed(program(body).replace("%t0 =", "%c0 = arith.constant 0.0 : f32 %t0 ="))
    assert [(line_of(each.place), line_of(each.other_place)) for each in found] == [each[:2] for each in waits]
    for each, (_, _, host) in zip(found, waits, strict=True):
        assert each.kind == "not needed"
        assert f"waits for {each.other} at {each.other_place}" in each.text
        hosts = re.findall(r"gpu.wait at test.mlir:(\d+):\d+ must wait instead", each.text)
        assert hosts == ([] if host is None else [str(host)])


@pytest.mark.parametrize("name", NEEDED | RIGHT)
def test_waits_that_are_needed_are_not_listed(name: str) -> None:
    assert listed(program((NEEDED | RIGHT)[name])) == []


@pytest.mark.parametrize("name", WRONG)
def test_missing_waits_are_listed_too(name: str) -> None:
    found = [each for each in listed(program(WRONG[name][0])) if each.kind == "missing"]
    assert [line_of(each.place) for each in found] == [WRONG[name][1]]


@pytest.mark.parametrize("seed", range(12))
def test_without_the_listed_waits_all_that_meet_are_in_order(seed: int) -> None:
    """Random chains of launches: what the remaining tokens imply, by a closure of pairs."""
    choose = random.Random(seed)
    count = 9
    uses = [choose.choices("xyz", k=2) for _ in range(count)]
    tokens = [{i - 1, *(j for j in range(i) if choose.random() < 0.2)} - {-1} for i in range(count)]
    lines = [
        f"%l{i} = launch async[{', '.join(f'%l{j}' for j in sorted(waits)) or '%t0'}] %{uses[i][0]} %{uses[i][1]}"
        for i, waits in enumerate(tokens)
    ]
    found = listed(program("\n".join([*lines, f"gpu.wait [%l{count - 1}]"])))
    order = {(j, i) for i, waits in enumerate(tokens) for j in waits}
    left = order - {(line_of(each.other_place) - 15, line_of(each.place) - 15) for each in found}
    assert len(order) - len(left) == len(found)
    for middle in range(count):
        left |= {(a, b) for a in range(count) for b in range(count) if {(a, middle), (middle, b)} <= left}
    for a, b in itertools.combinations(range(count), 2):
        if uses[a][1] in uses[b] or uses[b][1] in uses[a]:
            assert (a, b) in left, f"seed {seed}: {a} and {b}"


def test_concurrent_launches_have_no_wait_that_is_not_needed() -> None:
    chain = program(NOT_NEEDED["chains of chains"][0])
    assert listed(chain)
    assert listed(optimise(chain, FILE, "gpu-concurrency")) == []


def test_proofs_list_waits(motet: Run, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(program(NOT_NEEDED["a chain"][0]))
    command = ("compile", "p.mlir", "--prove", "--device", "host{cpu=x86-64-v3}")
    text = motet(*command).stdout
    assert "\nnot needed: p.mlir:16:7: gpu.launch_func: it waits for gpu.launch_func at p.mlir:15:7" in text
    found = json.loads(motet(*command, "--json").stdout)
    assert [each["function"] for each in found["schedules"]] == ["main"]
    assert [(each["kind"], each["place"], each["other_place"]) for each in found["waits"]] \
        == [("not needed", "p.mlir:16:7", "p.mlir:15:7")]
