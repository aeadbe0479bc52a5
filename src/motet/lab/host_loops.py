"""Loops that reach the limits of this machine's processor: multiply-adds, and traffic to memory.

Peak: twelve independent chains of float32 vector multiply-adds. Bandwidth: c = a + b over arrays of 64 MiB, with stores
past the caches. One thread per core, the best of many rounds.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from typing import Any

import llvmlite.binding as llvm
import numpy as np

CHAINS = 12
STEPS = 2_000_000
SHORT_STEPS = 50_000
ELEMENTS = 16 << 20


def _lanes() -> int:
    features = llvm.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


def _source(lanes: int) -> str:
    vector = f"<{lanes} x float>"
    chains = range(CHAINS)
    phis = "\n".join(f"  %a{i} = phi {vector} [%z{i}, %entry], [%b{i}, %loop]" for i in chains)
    steps = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{i}, {vector} %x, {vector} %x)"
        for i in chains)
    starts = "\n".join(
        f"  %p{i} = getelementptr {vector}, ptr %p, i64 {i + 1}\n  %z{i} = load {vector}, ptr %p{i}, align 64"
        for i in chains)  # with different values, or the compiler would merge the chains
    sums = "\n".join(
        f"  %s{i} = fadd {vector} {'%b0' if i == 1 else f'%s{i - 1}'}, %b{i}" for i in chains if i)
    return f"""
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define void @peak(i64 %n, ptr %p) {{
entry:
  %x = load {vector}, ptr %p, align 64
{starts}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
{phis}
{steps}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{CHAINS - 1}, ptr %p, align 64
  ret void
}}
define void @triad(i64 %begin, i64 %end, ptr %a, ptr %b, ptr %c) {{
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%j, %loop]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %pc = getelementptr float, ptr %c, i64 %i
  %x = load {vector}, ptr %pa, align 64
  %y = load {vector}, ptr %pb, align 64
  %z = fadd {vector} %x, %y
  store {vector} %z, ptr %pc, align 64, !nontemporal !0
  %j = add i64 %i, {lanes}
  %more = icmp ult i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
!0 = !{{i32 1}}
"""


def _aligned(count: int) -> np.ndarray:
    raw = np.ones(count + 16, np.float32)
    return raw[-raw.ctypes.data % 64 // 4 :][:count]


def _copied(array: np.ndarray) -> np.ndarray:
    aligned = _aligned(array.size)
    aligned[:] = array
    return aligned


class HostLoops:
    """Generates the loops once; `peak` and `bandwidth` measure. Keep the object alive during calls."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.lanes = _lanes()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_source(self.lanes)), machine)
        self._engine.finalize_object()
        self._arrays = [_aligned(ELEMENTS) for _ in range(3)]

    def peak(self, threads: int) -> float:
        """Float32 operations per second (a multiply-add is two)."""
        function = self._function("peak", 2)
        spots = [np.arange(1, 1 + 16 * (CHAINS + 2), dtype=np.float32) * 1e-3 for _ in range(threads)]
        spots = [_copied(spot) for spot in spots]
        seconds = _best([(function, (STEPS, spot.ctypes.data)) for spot in spots], 8)
        return threads * 2 * self.lanes * CHAINS * STEPS / seconds

    def core_peak(self) -> float:
        """Float32 operations per second of one core, by short rounds, of which one is undisturbed on a busy machine."""
        function = self._function("peak", 2)
        spot = _copied(np.arange(1, 1 + 16 * (CHAINS + 2), dtype=np.float32) * 1e-3)
        seconds = _best([(function, (SHORT_STEPS, spot.ctypes.data))], 200)
        return 2 * self.lanes * CHAINS * SHORT_STEPS / seconds

    def bandwidth(self, threads: int) -> float:
        """Bytes read and written per second."""
        function = self._function("triad", 5)
        cut = [ELEMENTS * i // threads // 64 * 64 for i in range(threads + 1)]
        places = [array.ctypes.data for array in self._arrays]
        jobs = [(function, (begin, end, *places)) for begin, end in itertools.pairwise(cut)]
        return 3 * 4 * ELEMENTS / _best(jobs, 12)

    def _function(self, name: str, arguments: int) -> Any:
        return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(self._engine.get_function_address(name))


def _best(jobs: list[tuple[Any, tuple[int, ...]]], rounds: int) -> float:
    """The seconds until every job, each on a separate thread, is done, in the best round."""
    barrier = threading.Barrier(len(jobs))
    spans: list[list[tuple[float, float]]] = [[] for _ in jobs]

    def work(index: int) -> None:
        function, arguments = jobs[index]
        for _ in range(rounds):
            barrier.wait()
            start = time.perf_counter()
            function(*arguments)
            spans[index].append((start, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return min(max(end for _, end in number) - min(start for start, _ in number) for number in zip(*spans, strict=True))
