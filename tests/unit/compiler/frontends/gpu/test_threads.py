"""Threads of a block between barriers: random kernels against all threads in step, in numpy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prepared import load_mlir
from tests.seeds import examples

from motet.compiler.verify.oracle import run_oracle

SHARED = "#gpu.address_space<workgroup>"


@dataclass
class Kernel:
    """A kernel under construction, its text and what its threads compute: `steps` act on the values of all threads of
    a block (x) and their shared memory."""

    threads: int
    lines: list[str] = field(default_factory=list)
    names: int = 0

    def fresh(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def emit(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name


Step = tuple[str, int, int, list["Step"]]  # what, two numbers, and the steps within


def steps(depth: int) -> st.SearchStrategy[list[Step]]:
    small = st.integers(-3, 3)
    plain = st.tuples(st.sampled_from(["exchange", "scale", "load", "largest"]), small, small, st.just([]))
    if not depth:
        return st.lists(plain, min_size=1, max_size=3)
    inner = st.tuples(st.sampled_from(["for", "if"]), st.integers(0, 3), small, steps(depth - 1))
    return st.lists(st.one_of(plain, plain, inner), min_size=1, max_size=3)


def write(kernel: Kernel, todo: list[Step], value: str) -> str:
    """The text of the steps on `value`, a name; the name of the result."""
    for what, a, b, inner in todo:
        if what == "scale":
            factor, added = kernel.emit(f"arith.constant {a} : i32"), kernel.emit(f"arith.constant {b} : i32")
            product = kernel.emit(f"arith.muli {value}, {factor} : i32")
            value = kernel.emit(f"arith.addi {product}, {added} : i32")
        elif what == "load":
            there = kernel.emit("memref.load %x[%i] : memref<?xi32>")
            value = kernel.emit(f"arith.xori {value}, {there} : i32")
        elif what == "largest":
            most = kernel.emit(f"gpu.all_reduce maxsi {value} uniform {{}} : (i32) -> i32")
            value = kernel.emit(f"arith.subi {most}, {value} : i32")
        elif what == "exchange":
            shift = kernel.emit(f"arith.constant {a % kernel.threads} : index")
            moved = kernel.emit(f"arith.addi %t, {shift} : index")
            at = kernel.emit(f"arith.remui {moved}, %size : index")
            kernel.lines.append(f"memref.store {value}, %s[%t] : memref<{kernel.threads}xi32, {SHARED}>")
            kernel.lines.append("gpu.barrier")
            other = kernel.emit(f"memref.load %s[{at}] : memref<{kernel.threads}xi32, {SHARED}>")
            kernel.lines.append("gpu.barrier")
            value = kernel.emit(f"arith.addi {value}, {other} : i32")
        elif what == "for":
            end = kernel.emit(f"arith.constant {a} : index")
            result, carried = kernel.fresh(), kernel.fresh()
            loop = f"%k{kernel.names} = %zero to {end} step %one"
            kernel.lines.append(f"{result} = scf.for {loop} iter_args({carried} = {value}) -> i32 {{")
            handed = write(kernel, inner, carried)
            kernel.lines += [f"scf.yield {handed} : i32", "}"]
            value = result
        else:
            limit = kernel.emit(f"arith.constant {a} : index")
            taken = kernel.emit(f"arith.cmpi ult, %b, {limit} : index")
            result = kernel.fresh()
            kernel.lines.append(f"{result} = scf.if {taken} -> i32 {{")
            handed = write(kernel, inner, value)
            kernel.lines += [f"scf.yield {handed} : i32", "} else {", f"scf.yield {value} : i32", "}"]
            value = result
    return value


def compute(todo: list[Step], value: np.ndarray, x: np.ndarray, block: int) -> np.ndarray:
    """The same on the values of all threads of `block`, in step."""
    for what, a, b, inner in todo:
        if what == "scale":
            value = value * np.int32(a) + np.int32(b)
        elif what == "load":
            value = value ^ x
        elif what == "largest":
            value = value.max() - value
        elif what == "exchange":
            value = value + np.roll(value, -(a % len(value)))
        elif what == "for":
            for _ in range(a):
                value = compute(inner, value, x, block)
        elif block < a:
            value = compute(inner, value, x, block)
    return value


@settings(max_examples=examples(40))
@given(todo=steps(2), blocks=st.integers(1, 4), threads=st.integers(1, 9), seed=st.integers(0, 99))
def test_random_kernels_compute_what_threads_in_step_do(todo: list[Step], blocks: int, threads: int, seed: int) -> None:
    kernel = Kernel(threads)
    start = kernel.emit("memref.load %x[%i] : memref<?xi32>")
    end = write(kernel, todo, start)
    body = "\n".join(kernel.lines)
    text = f"""
    module attributes {{gpu.container_module}} {{
      gpu.module @m {{
        gpu.func @k(%x: memref<?xi32>, %y: memref<?xi32>) workgroup(%s: memref<{threads}xi32, {SHARED}>) kernel {{
          %zero = arith.constant 0 : index
          %one = arith.constant 1 : index
          %t = gpu.thread_id x
          %b = gpu.block_id x
          %size = gpu.block_dim x
          %i = gpu.global_id x
          {body}
          memref.store {end}, %y[%i] : memref<?xi32>
          gpu.return
        }}
      }}
      func.func @main(%x: memref<?xi32>, %y: memref<?xi32>) {{
        %one = arith.constant 1 : index
        %blocks = arith.constant {blocks} : index
        %threads = arith.constant {threads} : index
        gpu.launch_func @m::@k blocks in (%blocks, %one, %one) threads in (%threads, %one, %one)
          args(%x : memref<?xi32>, %y : memref<?xi32>)
        return
      }}
    }}
    """
    x = np.random.default_rng(seed).integers(-99, 99, blocks * threads).astype(np.int32)
    rows = x.reshape(blocks, threads)
    with np.errstate(over="ignore"):
        want = np.concatenate([compute(todo, row, row, block) for block, row in enumerate(rows)])
    (found,) = run_oracle(load_mlir(text, "test.mlir"), "main", [x, np.zeros_like(x)])
    np.testing.assert_array_equal(found, want)
