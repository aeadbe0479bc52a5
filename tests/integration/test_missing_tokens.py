"""Operations of the dialect gpu that use memory in flight without waiting for it: a warning, or an error."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from tests.prepared import load_mlir

import motet
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
