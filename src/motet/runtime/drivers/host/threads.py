"""The host's threads: their number, their lifetime, and the native pool that they serve.

Workers are Python daemon threads inside one native call that does not use the interpreter. They start with the first
program that has work for them, and again after a fork, and end with their pool or the interpreter.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from motet.errors import DeviceError, OptionError
from motet.runtime.drivers.common import pages
from motet.runtime.drivers.host import layout
from motet.runtime.drivers.host.loader import NativeCode, host_machine, load_objects

VARIABLE = "MOTET_THREADS"
MOST_THREADS = 1024
_SPIN_SECONDS = 100e-6
_CROWDED_SPIN_SECONDS = 1e-6
_JOIN_SECONDS = 2.0


# -- thread counts ---------------------------------------------------------------------------------


def thread_count(environment: Mapping[str, str] | None = None) -> int:
    """MOTET_THREADS, else the number of CPUs that this process may use and has CPU quota for.

    Raises: motet.errors.OptionError if MOTET_THREADS is not a positive integer.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if text:
        if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text)):
            raise OptionError(
                f"environment: {VARIABLE}: expected a positive number of threads, found '{text}'; "
                "correct it or unset it"
            )
        return min(int(text), MOST_THREADS)
    quota = cpu_quota()
    count = processors() if quota is None else min(processors(), max(1, math.ceil(quota)))
    return min(count, MOST_THREADS)


def processors() -> int:
    """The number of CPUs in this process's affinity mask."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The CPU quota that this process's control groups (version 1 or 2) grant, in CPUs; None: unlimited."""
    quotas: list[float | None] = []
    for line in _read(groups).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            for base in (root, root / "unified"):
                quotas += map(_quota_v2, _ancestors(base, path))
        elif "cpu" in controllers.split(","):
            for base in {root / controllers, root / "cpu"}:
                quotas += map(_quota_v1, _ancestors(base, path))
    return min((quota for quota in quotas if quota is not None), default=None)


def _ancestors(base: Path, path: str) -> list[Path]:
    """The group's folder and its ancestors. In a container, the group's path may not exist inside."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    if not (quota.isdigit() and period.isdigit() and int(quota) and int(period)):
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


# -- the pool --------------------------------------------------------------------------------------


def support_object(machine: str) -> Path:
    """The file with the native support code of a machine."""
    return Path(__file__).parent / f"support-{machine}.o"


@functools.cache
def support_code() -> NativeCode:
    """The native support code of this machine. Raises: motet.errors.DeviceError if there is none."""
    path = support_object(host_machine())
    if not path.is_file():
        raise DeviceError(
            f"device host: no native support code for {host_machine()}; expected the file {path}"
        )
    return load_objects([path.read_bytes()], {}, [path.name])


@dataclass
class _ThreadState:
    """The state that outlives a HostThreads object just long enough to end its threads."""

    address: int
    size: int
    lanes: int
    threads: list[threading.Thread] = field(default_factory=list[threading.Thread])


class HostThreads:
    """`count` threads, including the caller's, that run the tasks of programs. Thread-safe.

    `cores` are the CPUs to which its workers are pinned; the caller's thread is not pinned.

    Raises: motet.errors.DeviceError, motet.errors.OptionError, motet.errors.OutOfMemoryError.
    """

    def __init__(self, count: int | None = None, cores: Collection[int] = ()) -> None:
        self.count = (len(cores) or thread_count()) if count is None else count
        self._cores = frozenset(cores)
        if not 1 <= self.count <= MOST_THREADS:
            raise OptionError(f"device host: {self.count} threads; expected 1 to {MOST_THREADS}")
        code = support_code()
        lanes = layout.SUBMITTERS + self.count - 1
        size = pages.round_up(layout.PoolLayout.LANES + lanes * layout.LaneLayout.STRIDE, pages.PAGE)
        self._state = _ThreadState(pages.map_pages(size), size, lanes)
        self.address = self._state.address
        self._lock = threading.Lock()
        self._worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("motet_worker"))
        _store(self.address + layout.PoolLayout.SHIFT, (2 * self.count - 1).bit_length())
        _store(self.address + layout.PoolLayout.SPIN, 1)
        weakref.finalize(self, _release, self._state).atexit = False
        weakref.finalize(self, _stop, self._state)
        renew = weakref.WeakMethod(self._renew)
        os.register_at_fork(after_in_child=lambda: _call(renew))

    @property
    def started(self) -> bool:
        return bool(ctypes.c_int32.from_address(self.address + layout.PoolLayout.STARTED).value)

    def start(self) -> None:
        """Start the workers unless they run. Programs call it when they need them."""
        with self._lock:
            if self.started:
                return
            _store(self.address + layout.PoolLayout.SPIN, _pauses(self._spin_seconds()))
            lanes = self.address + layout.PoolLayout.LANES + layout.SUBMITTERS * layout.LaneLayout.STRIDE
            for number in range(self.count - 1):
                arguments = (self.address, lanes + number * layout.LaneLayout.STRIDE)
                name = f"motet-{number + 1}"
                target = functools.partial(_on_cores, self._cores, self._worker) if self._cores else self._worker
                thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter is exiting: use the existing ones
                    break
                self._state.threads.append(thread)
            _store(self.address + layout.PoolLayout.WORKERS, len(self._state.threads))
            ctypes.c_int32.from_address(self.address + layout.PoolLayout.STARTED).value = 1

    def _spin_seconds(self) -> float:
        return _SPIN_SECONDS if self.count <= processors() else _CROWDED_SPIN_SECONDS

    def _renew(self) -> None:
        """Reset in the child of a fork, which has no workers; work of other threads will not be finished."""
        self._lock = threading.Lock()
        self._state.threads.clear()
        kept = (layout.PoolLayout.SPIN, layout.PoolLayout.SHIFT)
        for offset in range(0, int(layout.PoolLayout.LANES), 8):
            if offset not in kept:
                _store(self.address + offset, 0)
        for number in range(self._state.lanes):
            lane = self.address + layout.PoolLayout.LANES + number * layout.LaneLayout.STRIDE
            _store(lane + layout.LaneLayout.SHARE, 0)


def _on_cores(cores: frozenset[int], worker: Callable[..., None], *arguments: int) -> None:
    os.sched_setaffinity(0, cores)  # of this thread
    worker(*arguments)


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    target = method()
    if target is not None:
        target()


def _store(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = value


@functools.cache
def _pause_seconds() -> float:
    """The seconds of one pause of a spinning thread: 4 to 140 cycles, depending on the CPU."""
    spin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(support_code().address("motet_spin"))
    best = math.inf
    for _ in range(5):
        begin = time.perf_counter()
        spin(500)
        best = min(best, time.perf_counter() - begin)
    return max(best / 500, 1e-9)


def _pauses(seconds: float) -> int:
    return max(1, round(seconds / _pause_seconds()))


def _stop(state: _ThreadState) -> bool:
    """Make the workers return and wait for them; returns whether all have."""
    if not state.threads:
        return True
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(support_code().address("motet_stop"))(state.address)
    deadline = time.monotonic() + _JOIN_SECONDS
    for thread in state.threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    state.threads[:] = [thread for thread in state.threads if thread.is_alive()]
    return not state.threads


def _release(state: _ThreadState) -> None:
    if not _stop(state):
        return  # a worker that hangs in a kernel still reads the memory
    libc = ctypes.CDLL(None)
    for lane in range(state.lanes):
        address = state.address + layout.PoolLayout.LANES + lane * layout.LaneLayout.STRIDE
        libc.free(ctypes.c_void_p(ctypes.c_int64.from_address(address).value))
    pages.unmap_pages(state.address, state.size)
