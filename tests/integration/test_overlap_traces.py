"""What `motet run --trace` shows of two branches: that they run at the same time, on each kind of device."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Run

from motet.runtime.device import probe

RISCV = next((info.reason for info in probe("riscv") if not info.available and info.uri == "riscv:qemu"), "")
ATTEMPTS = 30  # a thread that another process keeps from running overlaps with nothing
needs_riscv = pytest.mark.skipif(bool(RISCV), reason=RISCV)


def branches(rows: int, first: int, second: int, length: int, devices: bool) -> str:
    """exp(x @ w) `length` times on @a beside tanh(y @ v) on @b, of other extents, so that kernels tell branches
    apart."""

    def branch(name: str, start: str, weights: str, width: int, function: str, device: str) -> list[str]:
        t, w = f"tensor<{rows}x{width}xf32>", f"tensor<{width}x{width}xf32>"
        place = f' {{motet.affinity = "{device}"}}' if devices else ""
        lines: list[str] = []
        value = start
        for step in range(length):
            n = f"%{name}{step}"
            lines += [
                f"{n}e = tensor.empty() : {t}",
                f"{n}i = linalg.fill ins(%zero : f32) outs({n}e : {t}) -> {t}",
                f"{n}m = linalg.matmul{place} ins({value}, {weights} : {t}, {w}) outs({n}i : {t}) -> {t}",
                f"{n} = {function} {n}m{place} : {t}",
            ]
            value = n
        return lines

    a, b = f"tensor<{rows}x{first}xf32>", f"tensor<{rows}x{second}xf32>"
    last = length - 1
    return "\n".join([
        f"func.func @main(%x: {a}, %w: tensor<{first}x{first}xf32>, %y: {b}, %v: tensor<{second}x{second}xf32>)",
        f"    -> ({a}, {b}) {{",
        "%zero = arith.constant 0.0 : f32",
        *branch("a", "%x", "%w", first, "math.absf", "a"),
        *branch("b", "%y", "%v", second, "math.tanh", "b"),
        f"return %a{last}, %b{last} : {a}, {b} }}",
    ])


def inputs(rows: int, first: int, second: int) -> list[str]:
    shapes = [(rows, first), (first, first), (rows, second), (second, second)]
    return [word for m, n in shapes for word in ("--input", f"{m}x{n}xf32=random:{m + n}")]


class Shown:
    """The events of a trace file, by their processes and threads."""

    def __init__(self, path: Path) -> None:
        entries: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
        names = [entry for entry in entries if entry["ph"] == "M"]
        self.devices = {e["pid"]: e["args"]["name"] for e in names if e["name"] == "process_name"}
        self.threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in names if e["name"] == "thread_name"}
        self.events = [entry for entry in entries if entry["ph"] == "X"]

    def of(self, kind: str, device: str = "") -> list[dict[str, Any]]:
        return [e for e in self.events if e["cat"] == kind and self.devices[e["pid"]].startswith(device)]


def meet(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether two events share some time."""
    begin = max(left["ts"], right["ts"])
    return begin < min(left["ts"] + left["dur"], right["ts"] + right["dur"])



def run_traced(
    motet: Run, folder: Path, text: str, compiling: list[str], running: list[str], arguments: list[str]
) -> Shown:
    (folder / "two.mlir").write_text(text)
    if not (folder / "two.motet").exists():
        outcome = motet("compile", "two.mlir", "-o", "two.motet", *compiling)
        assert outcome.returncode == 0, outcome.stderr
    outcome = motet("run", "two.motet", *running, *arguments, "--trace", "two.json")
    assert outcome.returncode == 0, outcome.stderr
    return Shown(folder / "two.json")


def of_both_branches(shown: Shown, device: str) -> bool:
    """Whether a core of a device was at work for one branch while another was for the other. Kernels say how many
    operations they do, which tells the branches apart."""
    work = {e["name"]: e["args"].get("flops", 0) for e in shown.of("launch", device)}
    assert len({flops for flops in work.values() if flops}) >= 2
    pieces = [piece for piece in shown.of("core", device) if work[piece["name"]]]
    return any(
        left["tid"] != right["tid"] and work[left["name"]] != work[right["name"]] and meet(left, right)
        for left in pieces for right in pieces
    )


def test_branches_overlap_in_the_threads_of_the_host(motet: Run, tmp_path: Path) -> None:
    text, given = branches(16, 192, 160, 6, devices=False), inputs(16, 192, 160)
    for _ in range(ATTEMPTS):
        shown = run_traced(
            motet, tmp_path, text, ["--option", "memory-limit=16M"], ["--threads", "4"], given
        )
        cores = {name for name in shown.threads.values() if name.startswith("core ")}
        if len(cores) > 1 and of_both_branches(shown, "host"):
            return
    pytest.fail("the branches never overlapped")


@needs_riscv
def test_branches_overlap_on_the_cores_of_the_accelerator(motet: Run, tmp_path: Path) -> None:
    text, given = branches(4, 48, 32, 3, devices=False), inputs(4, 48, 32)
    compiling = ["--device", "riscv", "--option", "memory-limit=16M"]
    for _ in range(ATTEMPTS):
        shown = run_traced(motet, tmp_path, text, compiling, ["--device", "riscv:qemu?harts=4"], given)
        cores = {name for (pid, _), name in shown.threads.items() if shown.devices[pid].startswith("riscv")}
        assert any(name.startswith("core ") for name in cores)
        if of_both_branches(shown, "riscv"):
            return
    pytest.fail("the branches never overlapped")


@needs_riscv
def test_branches_overlap_across_the_host_and_the_accelerator(motet: Run, tmp_path: Path) -> None:
    # What the accelerator takes milliseconds for, the host does in some microseconds: its branch is far larger. Its
    # threads leave processors to the emulator.
    text, given = branches(32, 1536, 32, 4, devices=True), inputs(32, 1536, 32)
    for _ in range(ATTEMPTS):
        shown = run_traced(
            motet, tmp_path, text, ["--device", "a=host", "--device", "b=riscv"],
            ["--device", "a=host?threads=2", "--device", "b=riscv:qemu?harts=2"], given,
        )
        if any(meet(here, there) for here in shown.of("launch", "host") for there in shown.of("launch", "riscv")):
            return
    pytest.fail("the branches never overlapped")


def test_branches_overlap_on_two_instances_of_the_host(motet: Run, tmp_path: Path) -> None:
    text, given = branches(512, 384, 320, 6, devices=True), inputs(512, 384, 320)
    for _ in range(ATTEMPTS):
        shown = run_traced(
            motet, tmp_path, text, ["--device", "a=host", "--device", "b=host"],
            ["--device", "a=host?threads=1", "--device", "b=host/1?threads=1"], given,
        )
        first, second = shown.of("launch", "host?"), shown.of("launch", "host/1")
        assert first
        assert second
        if any(meet(here, there) for here in first for there in second):
            return
    pytest.fail("the branches never overlapped")


def test_what_overlaps_on_one_queue_is_drawn_on_threads_of_its_own(motet: Run, tmp_path: Path) -> None:
    text, given = branches(16, 192, 160, 6, devices=False), inputs(16, 192, 160)
    shown = run_traced(motet, tmp_path, text, ["--option", "memory-limit=16M"], ["--threads", "4"], given)
    for track in {(event["pid"], event["tid"]) for event in shown.events}:
        assert track in shown.threads
        own = sorted((e for e in shown.events if (e["pid"], e["tid"]) == track), key=lambda e: (e["ts"], e["dur"]))
        for before, after in pairwise(own):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3  # microseconds, as decimals
