"""Programs in the dialect `gpu`, with inputs and what they compute according to numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
TILE = "#gpu.address_space<workgroup>"


@dataclass(frozen=True)
class Case:
    """`expected` takes the inputs and gives the arrays that the program writes, in the order of its arguments."""

    name: str
    text: str
    inputs: Callable[[], list[Array]]
    expected: Callable[..., Sequence[Array]]
    tolerance: float = 0.0


def program(kernel: str, arguments: str, body: str) -> str:
    """A module with one kernel's module @k and a function @main."""
    return (
        f"module attributes {{gpu.container_module}} {{\ngpu.module @k {{\n{kernel}\n}}\n"
        f"func.func @main({arguments}) {{\n%c1 = arith.constant 1 : index\n{body}\nreturn\n}}\n}}\n"
    )


def launch(kernel: str, grid: Sequence[int], block: Sequence[int], arguments: str, extra: str = "") -> str:
    """A launch with constant sizes."""
    sizes = [*grid, *([1] * (3 - len(grid))), *block, *([1] * (3 - len(block)))]
    lines = [f"%size{i} = arith.constant {size} : index" for i, size in enumerate(sizes)]
    grid_names, block_names = ", ".join(f"%size{i}" for i in range(3)), ", ".join(f"%size{i}" for i in range(3, 6))
    lines.append(
        f"gpu.launch_func @k::@{kernel} blocks in ({grid_names}) threads in ({block_names}) {extra} args({arguments})"
    )
    return "\n".join(lines)


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# -- kernels that cannot be raised to operations on tensors -------------------------------------------


def tree(rows: int, columns: int) -> Case:
    """Sums of rows by a tree in workgroup memory, whose barriers are in a loop; columns a power of two."""
    kernel = f"""
    gpu.func @tree(%x: memref<{rows}x{columns}xf32>, %y: memref<{rows}xf32>)
        workgroup(%s: memref<{columns}xf32, {TILE}>) kernel {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %steps = arith.constant {columns.bit_length() - 1} : index
      %half = arith.constant {columns // 2} : index
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %v = memref.load %x[%b, %t] : memref<{rows}x{columns}xf32>
      memref.store %v, %s[%t] : memref<{columns}xf32, {TILE}>
      gpu.barrier
      scf.for %i = %c0 to %steps step %c1 {{
        %width = arith.shrui %half, %i : index
        %active = arith.cmpi ult, %t, %width : index
        scf.if %active {{
          %o = arith.addi %t, %width : index
          %p = memref.load %s[%t] : memref<{columns}xf32, {TILE}>
          %q = memref.load %s[%o] : memref<{columns}xf32, {TILE}>
          %r = arith.addf %p, %q : f32
          memref.store %r, %s[%t] : memref<{columns}xf32, {TILE}>
        }}
        gpu.barrier
      }}
      %first = arith.cmpi eq, %t, %c0 : index
      scf.if %first {{
        %sum = memref.load %s[%c0] : memref<{columns}xf32, {TILE}>
        memref.store %sum, %y[%b] : memref<{rows}xf32>
      }}
      gpu.return
    }}"""
    arguments = f"%x: memref<{rows}x{columns}xf32>, %y: memref<{rows}xf32>"
    return Case(
        f"tree_{rows}x{columns}",
        program(kernel, arguments, launch("tree", [rows], [columns], f"{arguments.replace(':', ' :')}")),
        lambda: [values(rows, columns), np.zeros(rows, np.float32)],
        lambda x, y: [x.astype(np.float64).sum(axis=1).astype(np.float32)], 1e-5,
    )


def all_reduce(rows: int, threads: int, operation: str = "maximumf") -> Case:
    """Each row minus the reduction over it."""
    kernel = f"""
    gpu.func @reduce(%x: memref<{rows}x{threads}xf32>, %y: memref<{rows}x{threads}xf32>) kernel {{
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %v = memref.load %x[%b, %t] : memref<{rows}x{threads}xf32>
      %m = gpu.all_reduce {operation} %v uniform {{}} : (f32) -> f32
      %d = arith.subf %v, %m : f32
      memref.store %d, %y[%b, %t] : memref<{rows}x{threads}xf32>
      gpu.return
    }}"""
    arguments = f"%x: memref<{rows}x{threads}xf32>, %y: memref<{rows}x{threads}xf32>"
    with_numpy = {"maximumf": np.max, "add": np.sum}[operation]
    return Case(
        f"all_reduce_{operation}_{rows}x{threads}",
        program(kernel, arguments, launch("reduce", [rows], [threads], arguments.replace(":", " :"))),
        lambda: [values(rows, threads), np.zeros((rows, threads), np.float32)],
        lambda x, y: [x - with_numpy(x.astype(np.float64), axis=1, keepdims=True).astype(np.float32)], 1e-4,
    )


def transpose(rows: int, columns: int, tile: int = 16) -> Case:
    """By tiles in workgroup memory with a column more, threads beyond the edge doing nothing."""
    kernel = f"""
    gpu.func @transpose(%x: memref<{rows}x{columns}xf32>, %y: memref<{columns}x{rows}xf32>)
        workgroup(%s: memref<{tile}x{tile + 1}xf32, {TILE}>) kernel {{
      %rows = arith.constant {rows} : index
      %columns = arith.constant {columns} : index
      %tile = arith.constant {tile} : index
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %i = gpu.global_id y
      %j = gpu.global_id x
      %i_in = arith.cmpi ult, %i, %rows : index
      %j_in = arith.cmpi ult, %j, %columns : index
      %in = arith.andi %i_in, %j_in : i1
      scf.if %in {{
        %v = memref.load %x[%i, %j] : memref<{rows}x{columns}xf32>
        memref.store %v, %s[%ty, %tx] : memref<{tile}x{tile + 1}xf32, {TILE}>
      }}
      gpu.barrier
      %r0 = arith.muli %bx, %tile : index
      %r = arith.addi %r0, %ty : index
      %c0 = arith.muli %by, %tile : index
      %c = arith.addi %c0, %tx : index
      %r_in = arith.cmpi ult, %r, %columns : index
      %c_in = arith.cmpi ult, %c, %rows : index
      %out = arith.andi %r_in, %c_in : i1
      scf.if %out {{
        %w = memref.load %s[%tx, %ty] : memref<{tile}x{tile + 1}xf32, {TILE}>
        memref.store %w, %y[%r, %c] : memref<{columns}x{rows}xf32>
      }}
      gpu.return
    }}"""
    arguments = f"%x: memref<{rows}x{columns}xf32>, %y: memref<{columns}x{rows}xf32>"
    grid = [-(-columns // tile), -(-rows // tile)]
    return Case(
        f"transpose_{rows}x{columns}",
        program(kernel, arguments, launch("transpose", grid, [tile, tile], arguments.replace(":", " :"))),
        lambda: [values(rows, columns), np.zeros((columns, rows), np.float32)], lambda x, y: [x.T],
    )


def histogram(count: int, bins: int, threads: int) -> Case:
    """By atomic operations on an argument that holds something before."""
    kernel = f"""
    gpu.func @histogram(%x: memref<{count}xi32>, %y: memref<{bins}xi32>) kernel {{
      %n = arith.constant {count} : index
      %one = arith.constant 1 : i32
      %i = gpu.global_id x
      %in = arith.cmpi ult, %i, %n : index
      scf.if %in {{
        %v = memref.load %x[%i] : memref<{count}xi32>
        %b = arith.index_cast %v : i32 to index
        %old = memref.atomic_rmw addi %one, %y[%b] : (i32, memref<{bins}xi32>) -> i32
      }}
      gpu.return
    }}"""
    arguments = f"%x: memref<{count}xi32>, %y: memref<{bins}xi32>"
    return Case(
        f"histogram_{count}",
        program(
            kernel, arguments, launch("histogram", [-(-count // threads)], [threads], arguments.replace(":", " :"))
        ),
        lambda: [np.random.default_rng(1).integers(0, bins, count).astype(np.int32), np.arange(bins, dtype=np.int32)],
        lambda x, y: [y + np.bincount(x, minlength=bins).astype(np.int32)],
    )


def mathematics(count: int, threads: int) -> Case:
    """Elementary functions, blocks of threads that are no multiple of 32, as it was written."""
    kernel = f"""
    gpu.func @functions(%x: memref<{count}xf32>, %y: memref<6x{count}xf32>) kernel attributes {{motet.as_written}} {{
      %n = arith.constant {count} : index
      %i = gpu.global_id x
      %in = arith.cmpi ult, %i, %n : index
      scf.if %in {{
        %v = memref.load %x[%i] : memref<{count}xf32>
        %0 = math.exp %v : f32
        %1 = math.tanh %v : f32
        %2 = math.erf %v : f32
        %3 = math.sin %v : f32
        %4 = math.sqrt %0 : f32
        %5 = math.log1p %0 : f32
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c2 = arith.constant 2 : index
        %c3 = arith.constant 3 : index
        %c4 = arith.constant 4 : index
        %c5 = arith.constant 5 : index
        memref.store %0, %y[%c0, %i] : memref<6x{count}xf32>
        memref.store %1, %y[%c1, %i] : memref<6x{count}xf32>
        memref.store %2, %y[%c2, %i] : memref<6x{count}xf32>
        memref.store %3, %y[%c3, %i] : memref<6x{count}xf32>
        memref.store %4, %y[%c4, %i] : memref<6x{count}xf32>
        memref.store %5, %y[%c5, %i] : memref<6x{count}xf32>
      }}
      gpu.return
    }}"""
    arguments = f"%x: memref<{count}xf32>, %y: memref<6x{count}xf32>"

    def expected(x: Array, y: Array) -> list[Array]:
        import math

        wide = x.astype(np.float64)
        erf = np.array([math.erf(v) for v in wide])
        return [np.stack([
            np.exp(wide), np.tanh(wide), erf, np.sin(wide), np.sqrt(np.exp(wide)), np.log1p(np.exp(wide)),
        ]).astype(np.float32)]  # fmt: skip

    return Case(
        f"functions_{count}",
        program(
            kernel, arguments, launch("functions", [-(-count // threads)], [threads], arguments.replace(":", " :"))
        ),
        lambda: [values(count), np.zeros((6, count), np.float32)], expected, 1e-5,
    )


def dynamic(threads: int = 64) -> Case:
    """Memory of an extent, and a grid, that are only known when running."""
    kernel = """
    gpu.func @shift(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) kernel attributes {motet.as_written} {
      %i = gpu.global_id x
      %in = arith.cmpi ult, %i, %n : index
      scf.if %in {
        %c1 = arith.constant 1 : index
        %j0 = arith.addi %i, %c1 : index
        %j = arith.remui %j0, %n : index
        %v = memref.load %x[%j] : memref<?xf32>
        memref.store %v, %y[%i] : memref<?xf32>
      }
      gpu.return
    }"""
    body = f"""
    %c0 = arith.constant 0 : index
    %t = arith.constant {threads} : index
    %n = memref.dim %x, %c0 : memref<?xf32>
    %b = arith.ceildivui %n, %t : index
    gpu.launch_func @k::@shift blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1)
      args(%x : memref<?xf32>, %y : memref<?xf32>, %n : index)"""
    return Case(
        "dynamic", program(kernel, "%x: memref<?xf32>, %y: memref<?xf32>", body),
        lambda: [values(1237), np.zeros(1237, np.float32)], lambda x, y: [np.roll(x, -1)],
    )


def turns(blocks: int, given: int, threads: int) -> Case:
    """A grid whose size the caller gives as a number; workgroup memory; blocks beyond do not run."""
    count = blocks * threads
    kernel = f"""
    gpu.func @turn(%x: memref<{count}xf32>) workgroup(%s: memref<{threads}xf32, {TILE}>) kernel {{
      %t = gpu.thread_id x
      %i = gpu.global_id x
      %n = gpu.block_dim x
      %one = arith.constant 1 : index
      %v = memref.load %x[%i] : memref<{count}xf32>
      memref.store %v, %s[%t] : memref<{threads}xf32, {TILE}>
      gpu.barrier
      %last = arith.subi %n, %one : index
      %other = arith.subi %last, %t : index
      %w = memref.load %s[%other] : memref<{threads}xf32, {TILE}>
      memref.store %w, %x[%i] : memref<{count}xf32>
      gpu.return
    }}"""
    body = f"""
    %b = arith.index_cast %b64 : i64 to index
    %t = arith.constant {threads} : index
    gpu.launch_func @k::@turn blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1) args(%x : memref<{count}xf32>)"""

    def expected(x: Array, b: Array) -> list[Array]:
        rows = x.reshape(blocks, threads).copy()
        rows[:given] = rows[:given, ::-1]
        return [rows.ravel()]

    return Case(
        f"turns_{blocks}x{threads}", program(kernel, f"%x: memref<{count}xf32>, %b64: i64", body),
        lambda: [values(count), np.array(given, np.int64)], expected,
    )


def narrow(count: int, kind: str) -> Case:
    """Numbers of 16 bits, a byte, and single bits, each thread reading across the block's border."""
    dtype = {"f16": np.float16, "i8": np.int8}[kind]
    add = "arith.addf" if kind == "f16" else "arith.addi"
    compare = "arith.cmpf olt" if kind == "f16" else "arith.cmpi slt"
    kernel = f"""
    gpu.func @narrow(%x: memref<{count}x{kind}>, %y: memref<{count}x{kind}>, %z: memref<{count}xi1>) kernel
        attributes {{motet.as_written}} {{
      %n = arith.constant {count} : index
      %c1 = arith.constant 1 : index
      %i = gpu.global_id x
      %in = arith.cmpi ult, %i, %n : index
      scf.if %in {{
        %j0 = arith.addi %i, %c1 : index
        %j = arith.remui %j0, %n : index
        %v = memref.load %x[%i] : memref<{count}x{kind}>
        %w = memref.load %x[%j] : memref<{count}x{kind}>
        %s = {add} %v, %w : {kind}
        %l = {compare}, %v, %w : {kind}
        memref.store %s, %y[%i] : memref<{count}x{kind}>
        memref.store %l, %z[%i] : memref<{count}xi1>
      }}
      gpu.return
    }}"""
    arguments = f"%x: memref<{count}x{kind}>, %y: memref<{count}x{kind}>, %z: memref<{count}xi1>"
    return Case(
        f"narrow_{kind}",
        program(kernel, arguments, launch("narrow", [-(-count // 48)], [48], arguments.replace(":", " :"))),
        lambda: [values(count, seed=3).astype(dtype) if kind == "f16" else (values(count) * 40).astype(dtype),
                 np.zeros(count, dtype), np.zeros(count, np.bool_)],
        lambda x, y, z: [x + np.roll(x, -1), x < np.roll(x, -1)],
    )  # fmt: skip


def convolutions(batch: int, filters: int, side: int, written: bool, single: bool = False) -> Case:
    """Two 3×3 convolutions of one channel, and their sum: three launches with a block for each row of a plane, of
    one thread for each point, or of a `single` thread that goes along the row."""
    x, w = f"memref<{batch}x1x{side}x{side}xf32>", f"memref<{filters}x1x3x3xf32>"
    y = f"memref<{batch}x{filters}x{side}x{side}xf32>"
    mark = "attributes {motet.as_written}" if written else ""
    low = "affine_map<(d0) -> (1 - d0, 0)>"
    high = f"affine_map<(d0) -> ({side + 1} - d0, 3)>"
    along = f"affine.for %j = 0 to {side} {{" if single else "%j = gpu.thread_id x"
    end = "}" if single else ""
    kernels = f"""
    gpu.func @conv(%x: {x}, %w: {w}, %b: memref<{filters}xf32>, %y: {y}) kernel {mark} {{
      %zero = arith.constant 0.0 : f32
      %n = gpu.block_id x
      %o = gpu.block_id y
      %i = gpu.block_id z
      {along}
      %s = affine.for %p = max {low}(%i) to min {high}(%i) iter_args(%s0 = %zero) -> f32 {{
        %t = affine.for %q = max {low}(%j) to min {high}(%j) iter_args(%s1 = %s0) -> f32 {{
          %c0 = arith.constant 0 : index
          %r = affine.apply affine_map<(d0, d1) -> (d0 + d1 - 1)>(%i, %p)
          %c = affine.apply affine_map<(d0, d1) -> (d0 + d1 - 1)>(%j, %q)
          %0 = memref.load %x[%n, %c0, %r, %c] : {x}
          %1 = memref.load %w[%o, %c0, %p, %q] : {w}
          %2 = arith.mulf %0, %1 : f32
          %3 = arith.addf %s1, %2 : f32
          affine.yield %3 : f32
        }}
        affine.yield %t : f32
      }}
      %bias = memref.load %b[%o] : memref<{filters}xf32>
      %v = arith.addf %s, %bias : f32
      memref.store %v, %y[%n, %o, %i, %j] : {y}
      {end}
      gpu.return
    }}
    gpu.func @add(%a: {y}, %b: {y}, %c: {y}) kernel {mark} {{
      %n = gpu.block_id x
      %o = gpu.block_id y
      %i = gpu.block_id z
      {along}
      %0 = memref.load %a[%n, %o, %i, %j] : {y}
      %1 = memref.load %b[%n, %o, %i, %j] : {y}
      %2 = arith.addf %0, %1 : f32
      memref.store %2, %c[%n, %o, %i, %j] : {y}
      {end}
      gpu.return
    }}"""
    sizes = f"blocks in (%n, %o, %h) threads in ({'%c1' if single else '%h'}, %c1, %c1)"
    body = f"""
    %n = arith.constant {batch} : index
    %o = arith.constant {filters} : index
    %h = arith.constant {side} : index
    %p = memref.alloc() : {y}
    %q = memref.alloc() : {y}
    gpu.launch_func @k::@conv {sizes} args(%x : {x}, %w : {w}, %b : memref<{filters}xf32>, %p : {y})
    gpu.launch_func @k::@conv {sizes} args(%x : {x}, %v : {w}, %d : memref<{filters}xf32>, %q : {y})
    gpu.launch_func @k::@add {sizes} args(%p : {y}, %q : {y}, %y : {y})"""
    arguments = f"%x: {x}, %w: {w}, %b: memref<{filters}xf32>, %v: {w}, %d: memref<{filters}xf32>, %y: {y}"

    def expected(x: Array, w: Array, b: Array, v: Array, d: Array, y: Array) -> list[Array]:
        padded = np.pad(x[:, 0], ((0, 0), (1, 1), (1, 1)))
        found = np.broadcast_to((b + d)[None, :, None, None], y.shape).astype(np.float32)
        for p in range(3):
            for q in range(3):
                window = padded[:, None, p : p + side, q : q + side]
                found = found + window * (w + v)[None, :, 0, p, q, None, None]
        return [found]

    return Case(
        f"convolutions_{'single_' if single else ''}{'written' if written else 'raised'}_{batch}",
        program(kernels, arguments, body),
        lambda: [values(batch, 1, side, side), values(filters, 1, 3, 3, seed=1), values(filters, seed=2),
                 values(filters, 1, 3, 3, seed=3), values(filters, seed=4),
                 np.zeros((batch, filters, side, side), np.float32)],
        expected, 1e-4,
    )  # fmt: skip


def shuffles(blocks: int, threads: int, kind: str = "f32") -> Case:
    """Each way to shuffle; lanes that are not there, and those out of reach, are not read."""
    dtype = {"f32": np.float32, "i32": np.int32, "f16": np.float16, "i8": np.int8, "f64": np.float64}[kind]
    zero = "0.0" if kind.startswith("f") else "0"
    memory = f"memref<{blocks}x{threads}x{kind}>"
    steps = {"xor": 5, "up": 3, "down": 7, "idx": 2}
    lines = "\n".join(
        f"""%n{mode} = arith.constant {step} : i32
        %s{mode}, %v{mode} = gpu.shuffle {mode} %v, %n{mode}, %w : {kind}
        %u{mode} = arith.select %v{mode}, %s{mode}, %zero : {kind}
        %c{mode} = arith.constant {place} : index
        memref.store %u{mode}, %y[%c{mode}, %b, %t] : memref<4x{blocks}x{threads}x{kind}>"""
        for place, (mode, step) in enumerate(steps.items())
    )
    kernel = f"""
    gpu.func @shuffles(%x: {memory}, %y: memref<4x{blocks}x{threads}x{kind}>) kernel {{
      %zero = arith.constant {zero} : {kind}
      %w = arith.constant 32 : i32
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %v = memref.load %x[%b, %t] : {memory}
      {lines}
      gpu.return
    }}"""
    arguments = f"%x: {memory}, %y: memref<4x{blocks}x{threads}x{kind}>"

    def expected(x: Array, y: Array) -> list[Array]:
        found = np.zeros_like(y)
        for number, (mode, step) in enumerate(steps.items()):
            for thread in range(threads):
                lane, first = thread % 32, thread // 32 * 32
                source = {"xor": lane ^ step, "up": lane - step, "down": lane + step, "idx": step}[mode]
                if 0 <= source < 32 and first + source < threads:
                    found[number, :, thread] = x[:, first + source]
        return [found]

    return Case(
        f"shuffles_{blocks}x{threads}_{kind}",
        program(kernel, arguments, launch("shuffles", [blocks], [threads], arguments.replace(":", " :"))),
        lambda: [(values(blocks, threads) * 40).astype(dtype), np.zeros((4, blocks, threads), dtype)], expected,
    )


def subgroups(blocks: int, threads: int, width: int = 32) -> Case:
    """Each value minus the sum of its subgroup, plus the greatest of the block by a region of its own."""
    memory = f"memref<{blocks}x{threads}xi32>"
    cluster = f" cluster(size = {width})" if width != 32 else ""
    kernel = f"""
    gpu.func @subgroups(%x: {memory}, %y: {memory}) kernel {{
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %v = memref.load %x[%b, %t] : {memory}
      %s = gpu.subgroup_reduce add %v{cluster} : (i32) -> i32
      %m = gpu.all_reduce %v uniform {{
      ^bb(%l : i32, %r : i32):
        %g = arith.cmpi sgt, %l, %r : i32
        %c = arith.select %g, %l, %r : i32
        "gpu.yield"(%c) : (i32) -> ()
      }} : (i32) -> i32
      %d = arith.subi %v, %s : i32
      %e = arith.addi %d, %m : i32
      memref.store %e, %y[%b, %t] : {memory}
      gpu.return
    }}"""
    arguments = f"%x: {memory}, %y: {memory}"

    def expected(x: Array, y: Array) -> list[Array]:
        sums = np.zeros_like(x)
        for first in range(0, threads, width):
            sums[:, first : first + width] = x[:, first : first + width].sum(axis=1, keepdims=True)
        return [x - sums + x.max(axis=1, keepdims=True)]

    return Case(
        f"subgroups_{blocks}x{threads}_{width}",
        program(kernel, arguments, launch("subgroups", [blocks], [threads], arguments.replace(":", " :"))),
        lambda: [(values(blocks, threads) * 1000).astype(np.int32), np.zeros((blocks, threads), np.int32)], expected,
    )


def dynamic_memory(blocks: int, threads: int) -> Case:
    """Two views of the memory that the launch gives, a function that the kernel calls, vectors of four, and a
    barrier in a branch that all threads of a block take."""
    memory = f"memref<{blocks * threads * 4}xf32>"
    view = f"memref<{threads * 4}xf32, {TILE}>"
    kernel = f"""
    func.func private @twice(%v: vector<4xf32>) -> vector<4xf32> {{
      %two = arith.constant dense<2.0> : vector<4xf32>
      %r = arith.mulf %v, %two : vector<4xf32>
      return %r : vector<4xf32>
    }}
    gpu.func @turn(%x: {memory}, %y: {memory}) kernel {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      %place = arith.constant {threads * 16} : index
      %all = gpu.dynamic_shared_memory : memref<?xi8, {TILE}>
      %a = memref.view %all[%c0][] : memref<?xi8, {TILE}> to {view}
      %s = memref.view %all[%place][] : memref<?xi8, {TILE}> to memref<{threads}xi32, {TILE}>
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %n = gpu.block_dim x
      %i = gpu.global_id x
      %at = arith.muli %i, %c4 : index
      %here = arith.muli %t, %c4 : index
      %v = vector.load %x[%at] : {memory}, vector<4xf32>
      %w = func.call @twice(%v) : (vector<4xf32>) -> vector<4xf32>
      vector.store %w, %a[%here] : {view}, vector<4xf32>
      %t32 = arith.index_cast %t : index to i32
      memref.store %t32, %s[%t] : memref<{threads}xi32, {TILE}>
      %odd0 = arith.remui %b, %c4 : index
      %odd = arith.cmpi eq, %odd0, %c1 : index
      scf.if %odd {{
        gpu.barrier
        %last = arith.subi %n, %c1 : index
        %o0 = arith.subi %last, %t : index
        %o32 = memref.load %s[%o0] : memref<{threads}xi32, {TILE}>
        %o = arith.index_cast %o32 : i32 to index
        %there = arith.muli %o, %c4 : index
        %u = vector.load %a[%there] : {view}, vector<4xf32>
        vector.store %u, %y[%at] : {memory}, vector<4xf32>
      }} else {{
        %sum = vector.reduction <add>, %w : vector<4xf32> into f32
        memref.store %sum, %y[%at] : {memory}
      }}
      gpu.return
    }}"""
    arguments = f"%x: {memory}, %y: {memory}"
    extra = "dynamic_shared_memory_size %bytes"

    def expected(x: Array, y: Array) -> list[Array]:
        found = y.reshape(blocks, threads, 4).copy()
        given = x.reshape(blocks, threads, 4)
        for block in range(blocks):
            if block % 4 == 1:
                found[block] = 2 * given[block, ::-1]
            else:
                found[block, :, 0] = 2 * given[block].sum(axis=1)
        return [found.ravel()]

    return Case(
        f"dynamic_memory_{blocks}x{threads}",
        program(kernel, arguments, f"%bytes = arith.constant {threads * 20} : i32\n"
                + launch("turn", [blocks], [threads], arguments.replace(":", " :"), extra)),
        lambda: [values(blocks * threads * 4), values(blocks * threads * 4, seed=1)], expected, 1e-5,
    )  # fmt: skip


def relaxation(count: int, turns: int) -> Case:
    """A loop of the host's side that hands memory on: each turn reads what the one before wrote."""
    memory = f"memref<{count}xf32>"
    kernel = f"""
    gpu.func @step(%x: {memory}, %y: {memory}, %turn: index) workgroup(%s: memref<{count}xf32, {TILE}>) kernel {{
      %t = gpu.thread_id x
      %n = arith.constant {count} : index
      %c1 = arith.constant 1 : index
      %half = arith.constant 0.5 : f32
      %v = memref.load %x[%t] : {memory}
      memref.store %v, %s[%t] : memref<{count}xf32, {TILE}>
      gpu.barrier
      %o0 = arith.addi %t, %c1 : index
      %o = arith.remui %o0, %n : index
      %w = memref.load %s[%o] : memref<{count}xf32, {TILE}>
      %a = arith.addf %v, %w : f32
      %b = arith.mulf %a, %half : f32
      %i = arith.index_cast %turn : index to i32
      %f = arith.sitofp %i : i32 to f32
      %r = arith.addf %b, %f : f32
      memref.store %r, %y[%t] : {memory}
      gpu.return
    }}"""
    body = f"""
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %n = arith.constant {count} : index
    %turns = arith.constant {turns} : index
    %last:2 = scf.for %t = %c0 to %turns step %c1 iter_args(%a = %x, %b = %y) -> ({memory}, {memory}) {{
      %half = arith.divui %t, %c2 : index
      gpu.launch_func @k::@step blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
        args(%a : {memory}, %b : {memory}, %half : index)
      scf.yield %b, %a : {memory}, {memory}
    }}"""

    def expected(x: Array, y: Array) -> list[Array]:
        given, other = x, y
        for turn in range(turns):
            other = ((given + np.roll(given, -1)) * np.float32(0.5) + np.float32(turn // 2)).astype(np.float32)
            given, other = other, given
        return [given, other] if turns % 2 == 0 else [other, given]

    return Case(
        f"relaxation_{count}x{turns}", program(kernel, f"%x: {memory}, %y: {memory}", body),
        lambda: [values(count), np.zeros(count, np.float32)], expected, 1e-5,
    )


# -- loops that cannot be raised, whose turns are independent -------------------------------------------


def newton(rows: int, columns: int) -> Case:
    """Square roots by Newton's iteration, as often as each takes: upstream proves that the turns are independent."""
    memory = f"memref<{rows}x{columns}xf32>"
    text = f"""
    func.func @main(%x: {memory}, %y: {memory}) {{
      %one = arith.constant 1.0 : f32
      %half = arith.constant 0.5 : f32
      %small = arith.constant 1.0e-6 : f32
      affine.for %i = 0 to {rows} {{
        affine.for %j = 0 to {columns} {{
          %v = affine.load %x[%i, %j] : {memory}
          %a = math.absf %v : f32
          %b = arith.addf %a, %one : f32
          %r = scf.while (%s = %b) : (f32) -> f32 {{
            %q = arith.mulf %s, %s : f32
            %d = arith.subf %q, %b : f32
            %rel = arith.divf %d, %b : f32
            %go = arith.cmpf ogt, %rel, %small : f32
            scf.condition(%go) %s : f32
          }} do {{
          ^bb0(%s: f32):
            %q = arith.divf %b, %s : f32
            %t = arith.addf %s, %q : f32
            %h = arith.mulf %t, %half : f32
            scf.yield %h : f32
          }}
          affine.store %r, %y[%i, %j] : {memory}
        }}
      }}
      return
    }}"""
    return Case(
        f"newton_{rows}x{columns}", text, lambda: [values(rows, columns), np.zeros((rows, columns), np.float32)],
        lambda x, y: [np.sqrt(np.abs(x.astype(np.float64)) + 1).astype(np.float32)], 1e-5,
    )


def scatter(rows: int, columns: int) -> Case:
    """Rows put where a table says, of extents that are only known when running; parallel by name, in steps of two,
    with memory of a turn's own."""
    text = """
    func.func @main(%x: memref<?x?xf32>, %table: memref<?xi32>, %y: memref<?x?xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %n = memref.dim %x, %c0 : memref<?x?xf32>
      %m = memref.dim %x, %c1 : memref<?x?xf32>
      scf.parallel (%i, %j) = (%c0, %c1) to (%n, %m) step (%c1, %c2) {
        %own = memref.alloc() : memref<2xf32>
        %t = memref.load %table[%i] : memref<?xi32>
        %k = arith.index_cast %t : i32 to index
        %v = memref.load %x[%i, %j] : memref<?x?xf32>
        memref.store %v, %own[%c1] : memref<2xf32>
        %odd = arith.remui %i, %c2 : index
        %is = arith.cmpi eq, %odd, %c1 : index
        scf.if %is {
          %w = memref.load %own[%c1] : memref<2xf32>
          memref.store %w, %y[%k, %j] : memref<?x?xf32>
        }
        memref.dealloc %own : memref<2xf32>
        scf.reduce
      }
      return
    }"""

    def expected(x: Array, table: Array, y: Array) -> list[Array]:
        found = y.copy()
        found[table[1::2], 1::2] = x[1::2, 1::2]
        return [found]

    return Case(
        f"scatter_{rows}x{columns}", text,
        lambda: [values(rows, columns), np.random.default_rng(5).permutation(rows).astype(np.int32),
                 values(rows, columns, seed=7)],
        expected,
    )  # fmt: skip


CASES = [
    tree(37, 64), tree(2, 256), all_reduce(3, 32), all_reduce(7, 45), all_reduce(2, 300, "add"), transpose(33, 47),
    transpose(16, 16), histogram(1000, 17, 100), mathematics(301, 27), mathematics(512, 128), dynamic(),
    turns(9, 5, 20), turns(700, 650, 33), narrow(101, "f16"), narrow(77, "i8"), convolutions(2, 5, 9, True),
    convolutions(2, 5, 9, False), convolutions(1, 3, 7, True, True), shuffles(3, 32),
    shuffles(2, 75), shuffles(1, 45, "f16"), shuffles(2, 70, "f64"),
    shuffles(2, 33, "i8"), subgroups(2, 32), subgroups(3, 77), subgroups(2, 50, 8), dynamic_memory(6, 37),
    relaxation(45, 6), relaxation(33, 3), newton(17, 31), scatter(13, 29), scatter(1, 2),
]  # fmt: skip
