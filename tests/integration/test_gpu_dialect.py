"""Programs with launches of GPU kernels: what they compute on the host, and what is said of those that are wrong."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prepared import load_mlir
from tests.unit.compiler.building import X86_64_V3, random, run

from motet.compiler.stages import optimise
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError

HOST = """
module attributes {{gpu.container_module}} {{
  gpu.module @k {{
{kernels}
  }}
  func.func @main({arguments}) {{
    %c1 = arith.constant 1 : index
{host}
    return
  }}
}}
"""


def host(kernels: str, arguments: str, body: str) -> str:
    return HOST.format(kernels=kernels, arguments=arguments, host=body)


SCALE = """
gpu.func @scale(%x: memref<{n}xf32>, %y: memref<{n}xf32>, %end: index) kernel {{
  %i = gpu.global_id x
  %inside = arith.cmpi ult, %i, %end : index
  cf.cond_br %inside, ^work, ^done
^work:
  %v = memref.load %x[%i] : memref<{n}xf32>
  %w = arith.mulf %v, %v : f32
  memref.store %w, %y[%i] : memref<{n}xf32>
  cf.br ^done
^done:
  gpu.return
}}
"""


@settings(max_examples=15)
@given(n=st.integers(1, 300), threads=st.integers(1, 64), spare=st.integers(0, 2))
def test_threads_beyond_the_end_do_nothing(n: int, threads: int, spare: int) -> None:
    blocks = -(-n // threads) + spare
    text = host(SCALE.format(n=n), f"%x: memref<{n}xf32>, %y: memref<{n}xf32>", f"""
        %n = arith.constant {n} : index
        %b = arith.constant {blocks} : index
        %t = arith.constant {threads} : index
        gpu.launch_func @k::@scale blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1)
          args(%x : memref<{n}xf32>, %y : memref<{n}xf32>, %n : index)
    """)  # fmt: skip
    x = random(n)
    program = load_mlir(text, "test.mlir")
    assert "scf." not in str(program.module)  # raised: full blocks up to the guard
    np.testing.assert_array_equal(run_oracle(program, "main", [x, np.zeros_like(x)])[0], x * x)


def test_the_size_of_a_grid_may_be_known_when_running_alone() -> None:
    text = host(SCALE.format(n=50), "%x: memref<50xf32>, %y: memref<50xf32>, %b: index, %n: index", """
        %t = arith.constant 8 : index
        gpu.launch_func @k::@scale blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1)
          args(%x : memref<50xf32>, %y : memref<50xf32>, %n : index)
    """)  # fmt: skip
    x, y = random(50), np.full(50, 7, np.float32)
    text = text.replace("%b: index, %n: index", "%b64: i64, %n64: i64").replace(
        "%t = arith", "%b = arith.index_cast %b64 : i64 to index\n%n = arith.index_cast %n64 : i64 to index\n%t = arith"
    )
    (found,) = run(text, [x, y, np.array(4), np.array(29)], X86_64_V3)
    np.testing.assert_array_equal(found, np.where(np.arange(50) < 29, x * x, 7))


TILE = "#gpu.address_space<workgroup>"
MATMUL = f"""
gpu.func @matmul(%a: memref<24x40xf32>, %b: memref<40x16xf32>, %c: memref<24x16xf32>)
    workgroup(%s: memref<8x8xf32, {TILE}>, %t: memref<8x8xf32, {TILE}>) kernel {{
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %tx = gpu.thread_id x
  %ty = gpu.thread_id y
  %row = gpu.global_id y
  %column = gpu.global_id x
  %sum = scf.for %tile = %c0 to %c5 step %one iter_args(%so_far = %zero) -> f32 {{
    %start = arith.muli %tile, %c8 : index
    %ak = arith.addi %start, %tx : index
    %bk = arith.addi %start, %ty : index
    %av = memref.load %a[%row, %ak] : memref<24x40xf32>
    memref.store %av, %s[%ty, %tx] : memref<8x8xf32, {TILE}>
    %bv = memref.load %b[%bk, %column] : memref<40x16xf32>
    memref.store %bv, %t[%ty, %tx] : memref<8x8xf32, {TILE}>
    gpu.barrier
    %more = scf.for %k = %c0 to %c8 step %one iter_args(%inner = %so_far) -> f32 {{
      %0 = memref.load %s[%ty, %k] : memref<8x8xf32, {TILE}>
      %1 = memref.load %t[%k, %tx] : memref<8x8xf32, {TILE}>
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %inner, %2 : f32
      scf.yield %3 : f32
    }}
    gpu.barrier
    scf.yield %more : f32
  }}
  memref.store %sum, %c[%row, %column] : memref<24x16xf32>
  gpu.return
}}
"""


# 24x40 times 40x16, in blocks of 8x8 threads.
MATMUL_LAUNCH = host(MATMUL, "%a: memref<24x40xf32>, %b: memref<40x16xf32>, %c: memref<24x16xf32>", """
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c8 = arith.constant 8 : index
  gpu.launch_func @k::@matmul blocks in (%c2, %c3, %c1) threads in (%c8, %c8, %c1)
    args(%a : memref<24x40xf32>, %b : memref<40x16xf32>, %c : memref<24x16xf32>)
""")  # fmt: skip


def test_a_tiled_product_takes_turns_at_barriers() -> None:
    a, b = random(24, 40, seed=1), random(40, 16, seed=2)
    (found,) = run(MATMUL_LAUNCH, [a, b, np.zeros((24, 16), np.float32)], X86_64_V3)
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)


@settings(max_examples=10)
@given(blocks=st.integers(1, 4), threads=st.sampled_from([1, 2, 7, 32]), known=st.booleans())
def test_threads_of_a_block_see_what_others_wrote_before_the_barrier(blocks: int, threads: int, known: bool) -> None:
    n = blocks * threads
    kernel = f"""
      gpu.func @turn(%x: memref<{n}xf32>) workgroup(%s: memref<{threads}xf32, {TILE}>)
          private(%p: memref<2xf32, #gpu.address_space<private>>) kernel {{
        %one = arith.constant 1 : index
        %c0 = arith.constant 0 : index
        %t = gpu.thread_id x
        %size = gpu.block_dim x
        %i = gpu.global_id x
        %v = memref.load %x[%i] : memref<{n}xf32>
        %twice = arith.addf %v, %v : f32
        memref.store %twice, %p[%one] : memref<2xf32, #gpu.address_space<private>>
        memref.store %v, %s[%t] : memref<{threads}xf32, {TILE}>
        gpu.barrier
        %last = arith.subi %size, %one : index
        %other = arith.subi %last, %t : index
        %w = memref.load %s[%other] : memref<{threads}xf32, {TILE}>
        %q = memref.load %p[%one] : memref<2xf32, #gpu.address_space<private>>
        %sum = gpu.all_reduce maximumf %v uniform {{}} : (f32) -> f32
        %0 = arith.addf %w, %q : f32
        %1 = arith.addf %0, %sum : f32
        memref.store %1, %x[%i] : memref<{n}xf32>
        gpu.return
      }}"""
    sizes = f"%t = arith.constant {threads} : index" if known else "%t = arith.index_cast %t64 : i64 to index"
    text = host(kernel, f"%x: memref<{n}xf32>, %t64: i64", f"""
        {sizes}
        %b = arith.constant {blocks} : index
        gpu.launch_func @k::@turn blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1) args(%x : memref<{n}xf32>)
    """)  # fmt: skip
    x = random(n)
    rows = x.reshape(blocks, threads)
    want = (rows[:, ::-1] + (rows + rows)) + rows.max(axis=1, keepdims=True)
    program = load_mlir(text, "test.mlir")
    found = run_oracle(program, "main", [x, np.array(threads, np.int64)])[0]
    np.testing.assert_allclose(found, want.ravel(), rtol=1e-6)


INLINE = """
func.func @main(%x: memref<6x5xf32>) -> memref<6x5xf32> {
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %c5 = arith.constant 5 : index
  %half = arith.constant 0.5 : f32
  %t0 = gpu.wait async
  %m, %t1 = gpu.alloc async [%t0] () : memref<6x5xf32>
  %h = gpu.alloc host_shared () : memref<6x5xf32>
  %t2 = gpu.memset async [%t1] %m, %half : memref<6x5xf32>, f32
  %t3 = gpu.launch async [%t2] blocks(%bx, %by, %bz) in (%gx = %c6, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%sx = %c5, %sy = %c1, %sz = %c1) {
    %v = memref.load %x[%bx, %tx] : memref<6x5xf32>
    %w = memref.load %m[%bx, %tx] : memref<6x5xf32>
    %s = arith.addf %v, %w : f32
    memref.store %s, %m[%bx, %tx] : memref<6x5xf32>
    gpu.terminator
  }
  %t4 = gpu.memcpy async [%t3] %h, %m : memref<6x5xf32>, memref<6x5xf32>
  %t5 = gpu.dealloc async [%t4] %m : memref<6x5xf32>
  gpu.wait [%t5]
  return %h : memref<6x5xf32>
}
"""


def test_memory_is_filled_copied_and_shared_with_the_host(caplog: pytest.LogCaptureFixture) -> None:
    x = random(6, 5)
    with caplog.at_level(logging.WARNING, "motet"):
        np.testing.assert_array_equal(run(INLINE, [x], X86_64_V3)[0], x + np.float32(0.5))
    assert not caplog.records


def test_memory_that_is_never_freed_is_named(caplog: pytest.LogCaptureFixture) -> None:
    text = INLINE.replace("%t5 = gpu.dealloc async [%t4] %m : memref<6x5xf32>\n", "").replace("[%t5]", "[%t4]")
    with caplog.at_level(logging.WARNING, "motet"):
        load_mlir(text, "test.mlir")
    assert [record.getMessage().split(": memory")[0] for record in caplog.records] == ["test.mlir:8:13: gpu.alloc"]


def test_a_kernel_reads_constants_of_the_module_whoever_sees_them() -> None:
    for visibility in ("", '"private" '):
        text = INLINE.replace("func.func @main", f"""
            memref.global {visibility}constant @t : memref<6x5xf32> = dense<3.0>
            func.func @main""", 1).replace("%v = memref.load %x[%bx, %tx] : memref<6x5xf32>", """
            %u = memref.load %x[%bx, %tx] : memref<6x5xf32>
            %k = memref.load %table[%bx, %tx] : memref<6x5xf32>
            %v = arith.mulf %u, %k : f32""").replace("%half = arith", """
            %table = memref.get_global @t : memref<6x5xf32>
            %half = arith""")  # fmt: skip
        x = random(6, 5)
        np.testing.assert_allclose(run(text, [x], X86_64_V3)[0], 3 * x + 0.5, rtol=1e-5, atol=1e-6)


LAUNCH = (
    "gpu.launch_func {extra} @k::@scale blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1)\n"
    "args(%x : memref<9xf32>, %y : memref<9xf32>, %c1 : index)"
)


def _launch(blocks: int = 1, threads: int = 9, launch: str = LAUNCH, before: str = "", extra: str = "") -> str:
    body = f"%b = arith.constant {blocks} : index\n%t = arith.constant {threads} : index\n{before}"
    return host(SCALE.format(n=9), "%x: memref<9xf32>, %y: memref<9xf32>", body + launch.format(extra=extra))


@pytest.mark.parametrize(("text", "message"), [
    (_launch(blocks=0), "gpu.launch_func: the grid has size 0 in x; expected 1 to 2147483647"),
    (_launch(threads=0), "gpu.launch_func: the block has size 0 in x; expected 1 to 1024"),
    (_launch(threads=1025), "gpu.launch_func: the block has size 1025 in x; expected 1 to 1024"),
    (_launch(threads=32, launch=LAUNCH.replace("(%t, %c1", "(%t, %t")).replace("%t, %t, %c1", "%t, %t, %t")
     .replace("threads in (%t, %t, %t)", "threads in (%t, %t, %t)"), "gpu.launch_func: a block of 32768 threads"),
    (_launch(launch=LAUNCH.replace("@k::@scale", "@other::@scale")),
     "gpu.launch_func: kernel @other::@scale is not in this file"),
    (_launch(launch=LAUNCH.replace("@k::@scale", "@k::@other")), "kernel function '@k::@other' is undefined"),
    (_launch(launch=LAUNCH.replace(", %c1 : index)", ")")), "got 2 kernel operands but expected 3"),
    (_launch(launch=LAUNCH.replace("%c1 : index)", "%x : memref<9xf32>)")),
     "type of function argument 2 does not match"),
    (_launch(before="%p = gpu.wait async [%q]\n%q = gpu.wait async [%p]\n", extra="async [%q]",
             launch="%r = " + LAUNCH), "operand #0 does not dominate this use"),
    (_launch(extra="async [%s]", launch="%r = " + LAUNCH).replace("%y: memref<9xf32>)", "%y: memref<9xf32>, %s: "
             "!gpu.async.token)"), "gpu.launch_func: a token from outside of this function"),
    (_launch().replace("cf.br ^done", "%cluster = gpu.cluster_id x\ncf.br ^done"),
     "gpu.cluster_id: this operation in a kernel is not supported on the host"),
    (_launch(launch=LAUNCH.replace("blocks in", "clusters in (%c1, %b, %c1) blocks in"), blocks=2),
     "gpu.launch_func: clusters of blocks are not supported"),
    (_launch().replace("cf.br ^done", "gpu.barrier\ncf.br ^done"),
     "threads of a block may differ in whether they reach"),
    (INLINE.replace("%gx = %c6", "%gx = %c0").replace("%c6 =", "%c0 = arith.constant 0 : index\n%c6 ="),
     "gpu.launch: the grid has size 0 in x"),
    (INLINE.replace("gpu.wait [%t5]", "gpu.memcpy %h, %m : memref<6x5xf32>, memref<6x5xf32>\ngpu.wait [%t5]"),
     "gpu.memcpy: memory is used after gpu.dealloc has freed it"),
])  # fmt: skip
def test_mistakes_are_one_error_with_their_place(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        load_mlir(text, "test.mlir")
    assert message in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line > 0


@pytest.mark.parametrize(("text", "message"), [
    (_launch(blocks=0), "gpu.launch_func: the grid has size 0 in x"),
    (_launch(threads=1025), "gpu.launch_func: the block has size 1025 in x"),
    (_launch(launch=LAUNCH.replace("@k::@scale", "@k::@other")), "kernel function '@k::@other' is undefined"),
    (_launch(launch=LAUNCH.replace(", %c1 : index)", ")")), "got 2 kernel operands but expected 3"),
    (_launch(before="%p = gpu.wait async [%q]\n%q = gpu.wait async [%p]\n", extra="async [%q]",
             launch="%r = " + LAUNCH), "operand #0 does not dominate this use"),
    (_launch(extra="async [%s]", launch="%r = " + LAUNCH).replace("%y: memref<9xf32>)", "%y: memref<9xf32>, %s: "
             "!gpu.async.token)"), "gpu.launch_func: a token from outside of this function"),
    (INLINE.replace("gpu.wait [%t5]", "gpu.memcpy %h, %m : memref<6x5xf32>, memref<6x5xf32>\ngpu.wait [%t5]"),
     "gpu.memcpy: memory is used after gpu.dealloc has freed it"),
])  # fmt: skip
def test_the_pass_says_the_same_of_mistakes(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        optimise(text, "test.mlir", "gpu-concurrency")
    assert message in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line > 0


# -- gpu-concurrency -------------------------------------------------------------------------------------


def _tokens(text: str) -> list[str]:
    """The lines of operations of gpu, with the tokens and names alone."""
    lines = [line.strip() for line in text.splitlines() if "gpu." in line and "gpu.module" not in line]
    return [line.split(" blocks ")[0] for line in lines if "gpu.wait" in line or "gpu.launch" in line]


ADD = """
gpu.func @add(%x: memref<9xf32>, %y: memref<9xf32>, %z: memref<9xf32>) kernel {
  %i = gpu.thread_id x
  %v = memref.load %x[%i] : memref<9xf32>
  %w = memref.load %y[%i] : memref<9xf32>
  %s = arith.addf %v, %w : f32
  memref.store %s, %z[%i] : memref<9xf32>
  gpu.return
}
"""


def _adds(*triples: str, between: str = "") -> str:
    """Launches of z = x + y for triples of the names of memrefs, z last."""
    launches = [
        "gpu.launch_func @k::@add blocks in (%c1, %c1, %c1) threads in (%c9, %c1, %c1) "
        f"args({', '.join(f'%{name} : memref<9xf32>' for name in triple)})\n{between}"
        for triple in triples
    ]
    arguments = ", ".join(f"%{name}: memref<9xf32>" for name in "abcdef")
    return host(ADD, arguments, "%c9 = arith.constant 9 : index\n" + "".join(launches))


@pytest.mark.parametrize(("triples", "waits"), [
    (("abc", "abd", "cde"), [[], [], [0, 1]]),  # two independent ones, joined
    (("abc", "cdc", "cce"), [[], [0], [1]]),  # read after write, and what is implied left out
    (("abc", "def", "bba"), [[], [], [0]]),  # write after read
    (("abc", "dec", "ffc"), [[], [0], [1]]),  # write after write
    (("aab", "aac", "aad", "aae"), [[], [], [], []]),  # reading together
])  # fmt: skip
def test_launches_wait_for_what_they_depend_on(triples: tuple[str, ...], waits: list[list[int]]) -> None:
    text = optimise(_adds(*triples), "test.mlir", "gpu-concurrency")
    made: dict[str, list[int]] = {}  # what every token stands for: the launches
    found: list[list[int]] = []
    for line in _tokens(text):
        name, _, operation = line.rpartition(" = ")
        waited = operation.partition("[")[2].partition("]")[0].split(", ") if "[" in operation else []
        launches = [launch for token in waited for launch in made[token]]
        if "launch_func" in operation:
            made[name] = [len(found)]
            found.append(launches)
        else:
            made[name] = launches
    assert found == waits
    arrays = [random(9, seed=seed) for seed in range(6)]
    values = dict(zip("abcdef", [array.copy() for array in arrays], strict=True))
    for x, y, z in triples:
        values[z] = values[x] + values[y]
    written = [name for name in "abcdef" if any(triple[2] == name for triple in triples)]
    for name, result in zip(written, run_oracle(load_mlir(text, "test.mlir"), "main", arrays), strict=True):
        np.testing.assert_array_equal(result, values[name])


def test_the_host_waits_before_it_reads_and_not_before_it_allocates() -> None:
    between = "%m{0} = memref.alloc() : memref<9xf32>\n"
    text = _adds("abc", "aad").replace("    return", "%v = memref.load %c[%c1] : memref<9xf32>\n"
                                       "memref.store %v, %e[%c1] : memref<9xf32>\n    return")  # fmt: skip
    text = text.replace("gpu.launch_func @k::@add", between.format(1) + "gpu.launch_func @k::@add", 1)
    lines = _tokens(optimise(text, "test.mlir", "gpu-concurrency"))
    assert [line.split(" = ")[-1].split(" @")[0] for line in lines] == [
        "gpu.wait async", "gpu.launch_func async [%0]", "gpu.wait async", "gpu.launch_func async [%2]",
        "gpu.wait [%1]", "gpu.wait [%3]",
    ]  # fmt: skip


@settings(max_examples=25)
@given(st.lists(st.text("abcdef", min_size=3, max_size=3), min_size=1, max_size=7))
def test_every_conflict_is_ordered_and_no_order_is_needless(triples: list[str]) -> None:
    text = optimise(_adds(*triples), "test.mlir", "gpu-concurrency")
    before: dict[str, set[int]] = {}  # the launches that have ended when a token is there
    reached: list[set[int]] = []
    for line in _tokens(text):
        name, _, operation = line.rpartition(" = ")
        waited = operation.partition("[")[2].partition("]")[0].split(", ") if "[" in operation else []
        ended = set[int]().union(*(before[token] for token in waited))
        before[name] = ended
        if "launch_func" in operation:
            before[name] = ended | {len(reached)}
            reached.append(ended)
    conflicts = [
        {i for i, other in enumerate(triples[:number]) if other[2] in triple or triple[2] in other}
        for number, triple in enumerate(triples)
    ]
    for number, direct in enumerate(conflicts):
        assert reached[number] == direct.union(*(reached[i] for i in direct))
    assert before[""] == set(range(len(triples)))  # the host waits for all at the end


def test_what_kernels_do_together_and_call_delays_nothing() -> None:
    """Shuffles, reductions, vectors and calls: what is read and written is still seen."""
    text = _adds("abc", "abd", "cde").replace("%s = arith.addf %v, %w : f32", """
      %one = arith.constant 1 : i32
      %o, %ok = gpu.shuffle xor %v, %one, %one : f32
      %r = gpu.subgroup_reduce add %w : (f32) -> f32
      %all = gpu.all_reduce add %r {} : (f32) -> f32
      %n = vector.load %x[%i] : memref<9xf32>, vector<1xf32>
      %m = vector.reduction <add>, %n : vector<1xf32> into f32
      %got = func.call @get(%y, %i) : (memref<9xf32>, index) -> f32
      %s = arith.addf %got, %m : f32""").replace("gpu.func @add", """
    func.func private @get(%y: memref<9xf32>, %i: index) -> f32 {
      %g = memref.load %y[%i] : memref<9xf32>
      return %g : f32
    }
    gpu.func @add""")
    lines = [line.split(" = ")[-1].split(" @")[0] for line in _tokens(optimise(text, "test.mlir", "gpu-concurrency"))]
    assert lines == [
        "gpu.wait async", "gpu.launch_func async [%0]", "gpu.wait async", "gpu.launch_func async [%2]",
        "gpu.wait async [%1, %3]", "gpu.launch_func async [%4]", "gpu.wait [%5]",
    ]  # fmt: skip


HOST_ONLY = """
func.func @main(%arg0: memref<9xf32>) -> memref<9xf32> {
  %c1 = arith.constant 1 : index
  %0 = "krnl.global"() {name = "c", shape = [9], value = dense<1.0> : tensor<9xf32>} : () -> memref<9xf32>
  %m = memref.alloc() : memref<9xf32>
  %t0 = gpu.wait async
  %t1 = gpu.launch_func async [%t0] @a::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    args(%arg0 : memref<9xf32>, %0 : memref<9xf32>, %m : memref<9xf32>)
  gpu.wait [%t1]
  %n = memref.alloc() : memref<9xf32>
  %t2 = gpu.launch_func async [%t1] @b::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    args(%arg0 : memref<9xf32>, %0 : memref<9xf32>, %n : memref<9xf32>)
  %t3 = gpu.launch_func async [%t2] @c::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    args(%m : memref<9xf32>, %n : memref<9xf32>)
  gpu.wait [%t3]
  return %n : memref<9xf32>
}
"""


def test_a_host_program_without_its_kernels_is_rewritten_and_stays_valid() -> None:
    text = optimise(HOST_ONLY, "test.mlir", "gpu-concurrency")
    assert [line.split(" = ")[-1].split(" @")[0] for line in _tokens(text) if "krnl" not in line] == [
        "gpu.wait async", "gpu.launch_func async [%1]", "gpu.wait async", "gpu.launch_func async [%3]",
        "gpu.wait async [%2, %4]", "gpu.launch_func async [%5]", "gpu.wait [%6]",
    ]  # fmt: skip
    assert optimise(text, "test.mlir", "canonicalize").count("gpu.launch_func") == 3


def test_a_piece_of_a_body_is_a_function_of_what_it_does_not_define() -> None:
    text = """
    %t0 = gpu.wait async
    %t1 = gpu.launch_func async [%t0] @a::@a blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%c1 : index, %x : memref<9xf32>, %y : memref<9xf32>)
    %t2 = gpu.launch_func async [%t1] @b::@b blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%z : memref<9xf32>)
    gpu.wait [%t2]
    """
    found = optimise(text, "test.mlir", "gpu-concurrency")
    assert "@main(%arg0: index, %arg1: index, %arg2: memref<9xf32>" in found
    assert [line.split(" = ")[-1].split(" @")[0] for line in _tokens(found)] == [
        "gpu.wait async", "gpu.launch_func async [%0]", "gpu.wait async", "gpu.launch_func async [%2]",
        "gpu.wait [%1, %3]",
    ]  # fmt: skip


def test_the_two_convolutions_as_launches_of_full_blocks_are_raised() -> None:
    convolution = """
    gpu.func @conv(%x: memref<4x1x9x9xf32>, %w: memref<5x1x3x3xf32>, %b: memref<5xf32>,
        %y: memref<4x5x9x9xf32>) kernel {
      %zero = arith.constant 0.0 : f32
      %n = gpu.block_id x
      %o = gpu.block_id y
      %i = gpu.block_id z
      %j = gpu.thread_id x
      %s = affine.for %p = max affine_map<(d0) -> (1 - d0, 0)>(%i) to min affine_map<(d0) -> (10 - d0, 3)>(%i)
          iter_args(%s0 = %zero) -> f32 {
        %t = affine.for %q = max affine_map<(d0) -> (1 - d0, 0)>(%j) to min affine_map<(d0) -> (10 - d0, 3)>(%j)
            iter_args(%s1 = %s0) -> f32 {
          %c0 = arith.constant 0 : index
          %r = affine.apply affine_map<(d0, d1) -> (d0 + d1 - 1)>(%i, %p)
          %c = affine.apply affine_map<(d0, d1) -> (d0 + d1 - 1)>(%j, %q)
          %0 = memref.load %x[%n, %c0, %r, %c] : memref<4x1x9x9xf32>
          %1 = memref.load %w[%o, %c0, %p, %q] : memref<5x1x3x3xf32>
          %2 = arith.mulf %0, %1 : f32
          %3 = arith.addf %s1, %2 : f32
          affine.yield %3 : f32
        }
        affine.yield %t : f32
      }
      %bias = memref.load %b[%o] : memref<5xf32>
      %v = arith.addf %s, %bias : f32
      memref.store %v, %y[%n, %o, %i, %j] : memref<4x5x9x9xf32>
      gpu.return
    }"""
    arguments = (
        "%x: memref<4x1x9x9xf32>, %w: memref<5x1x3x3xf32>, %b: memref<5xf32>, %y: memref<4x5x9x9xf32>"
    )
    text = host(convolution, arguments, """
        %c4 = arith.constant 4 : index
        %c5 = arith.constant 5 : index
        %c9 = arith.constant 9 : index
        gpu.launch_func @k::@conv blocks in (%c4, %c5, %c9) threads in (%c9, %c1, %c1)
          args(%x : memref<4x1x9x9xf32>, %w : memref<5x1x3x3xf32>, %b : memref<5xf32>, %y : memref<4x5x9x9xf32>)
    """)  # fmt: skip
    x, w, b = random(4, 1, 9, 9), random(5, 1, 3, 3), random(5)
    assert "scf." not in str(load_mlir(text, "test.mlir").module)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x[:, 0], ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2))
    want = np.einsum("nijpq,opq->noij", windows, w[:, 0]) + b[:, None, None]
    (found,) = run(text, [x, w, b, np.zeros((4, 5, 9, 9), np.float32)], X86_64_V3)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
