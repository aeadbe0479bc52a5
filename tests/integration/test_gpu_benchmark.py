"""What of the GPU's benchmark needs no GPU: its passes, its tables, exported rows, and IREE's runtime on the host."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
gpu: Any = pytest.importorskip("benchmarks.gpu")

from benchmarks import gpu_jax, gpu_models  # noqa: E402 - they need torch
from benchmarks.gpu_compile import exported  # noqa: E402
from benchmarks.gpu_iree import Iree  # noqa: E402
from benchmarks.gpu_rows import Apply, Input, Row, flat, rows, with_pattern  # noqa: E402
from benchmarks.gpu_table import markdown, merged  # noqa: E402

MACHINE = {"machine": {"device": "NVIDIA H100", "date": "2026-11-21", "torch": "2", "cuda": "13", "bandwidth": 1e12}}


def options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"rows": None, "peers": ["eager", "IREE", "JAX", "max-autotune"], "patience": 9.0,
                                 "time_limit": 60.0, "cold": False, "rounds": 1, "slot": 0.1, **given})


def test_what_may_end_the_process_or_takes_long_has_passes_of_its_own() -> None:
    together, iree, later = gpu.passes(options(rows=["products"]))
    assert together.contenders == ("Motet", "eager", "JAX", "Motet, graph")
    assert (iree.contenders, later.contenders) == (("IREE",), ("JAX", "max-autotune"))
    assert iree.rows == together.rows
    assert set(later.rows) < set(together.rows) and "matmul-gelu" in later.rows and 0 < iree.share < 1


def test_networks_of_jax_come_later() -> None:
    together, _, later = gpu.passes(options(rows=["fragment", "encoder", "whisper", "llama-step"]))
    assert set(together.rows) == {"fragment", "encoder", "whisper", "llama-step"}
    assert later.rows == ("encoder", "whisper")


def test_without_peers_there_is_motet_alone() -> None:
    (only,) = gpu.passes(options(rows=["fragment"], peers=[]))
    assert only.contenders == ("Motet", "Motet, graph") and only.rows == ("fragment",)


def rows_in(command: list[str]) -> list[str]:
    """The rows that the command of a child names."""
    return command[command.index("--rows") + 1 : command.index("--peers")]


def test_a_child_that_dies_is_started_anew_behind_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    given = options(rows=["fragment", "softmax", "gelu", "sum"], peers=["eager"], results=tmp_path / "lines")

    def watch(command: list[str], *_: Any) -> int:
        names = rows_in(command)
        asked.append(names)
        gpu.note(given.results, {"begin": names[0]})
        if names[0] == "softmax":
            return -11
        gpu.note(given.results, {"row": names[0], "peers": {}})
        if len(names) > 1:
            gpu.note(given.results, {"begin": names[1]})
            return -9
        return 0

    monkeypatch.setattr(gpu, "watch", watch)
    gpu.supervise(given, tmp_path)
    assert asked == [["fragment", "softmax", "gelu", "sum"], ["gelu", "sum"]]
    died = [line for line in gpu.read(given.results) if "error" in line]
    assert [(line["row"], line["error"]) for line in died] == [
        ("softmax", "its process ended with -9"), ("sum", "its process ended with -9")]


def test_a_pass_ends_where_no_row_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    given = options(rows=["memory"], peers=["eager"], results=tmp_path / "lines")

    def watch(command: list[str], *_: Any) -> int:
        begun.append(rows_in(command)[0])
        gpu.note(given.results, {"begin": begun[-1]})
        return -11

    monkeypatch.setattr(gpu, "watch", watch)
    gpu.supervise(given, tmp_path)
    assert begun == [row.name for row in rows() if row.group == "memory"][:3]


def test_tables_name_the_best_peer_and_leave_wrong_results_out() -> None:
    lines = [MACHINE, {"row": "softmax", "peers": {
        "Motet": {"min": 4e-4, "error": 1e-7}, "Motet, graph": {"min": 2e-4, "error": 1e-7},
        "eager": {"min": 8e-4, "error": 1e-7}, "JAX": {"min": 1e-4, "error": 1.0}}},
        {"row": "gelu", "peers": {"Motet": {"min": 1e-4, "error": 1e-3}, "eager": {"min": 2e-4, "error": 1e-3}}},
        {"row": "gelu", "peers": {"IREE": {"min": 0.5e-4, "error": 1e-3}}},
        {"cold": "fragment", "Motet": 0.25, "eager": 4.0}]
    text = markdown(rows(), lines, {})
    softmax, gelu = (next(line for line in text.splitlines() if line.startswith(f"| {what} "))
                     for what in ("softmax f32 8192²", "gelu bf16"))
    assert "| 4.00 | eager |" in softmax and "100" not in softmax
    assert "| 0.50 | IREE |" in gelu
    assert "| memory | 2 | 1.41 | 1 | 0 | 1 | 0.50 | 4.00 |" in text
    assert "the result of JAX is off by 1" in text
    assert "| 64×128·128×128 + lhs, f32 | 0.250 | 4 | – |" in text.replace("| 0.25 |", "| 0.250 |")


def test_the_faster_of_several_runs_is_shown() -> None:
    first, second = ({"row": "sum", "peers": {"Motet": {"min": seconds}}} for seconds in (3e-5, 2e-5))
    assert merged([first, second])["sum"]["peers"]["Motet"]["min"] == 2e-5


def test_rows_have_names_of_their_own_and_costs() -> None:
    every = rows()
    assert len({row.name for row in every}) == len({row.title for row in every}) == len(every)
    assert all(row.bytes > 0 and (row.flops > 0 or row.group == "memory") for row in every)


def test_iree_runs_what_it_compiled_from_the_same_model(tmp_path: Path) -> None:
    pytest.importorskip("iree.compiler")
    pytest.importorskip("iree.runtime")

    def make() -> Any:
        return with_pattern(torch.nn.Linear(33, 17), torch.float32)

    row = Row("small", "small", "layers", make, (Input((5, 33)),), 1.0, 1.0)
    (tmp_path / "small.onnx").write_bytes(exported(row))
    tool = Path(sys.executable).with_name("iree-compile")
    subprocess.run([sys.executable, "-m", "iree.compiler.tools.import_onnx", tmp_path / "small.onnx", "-o",
                    tmp_path / "small.mlir", "--opset-version", "20"], check=True, capture_output=True)
    subprocess.run([tool, tmp_path / "small.mlir", "-o", tmp_path / "small.vmfb", "--iree-hal-target-device=local",
                    "--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"],
                   check=True, capture_output=True)
    sets = [[torch.from_numpy(np.random.default_rng(seed).standard_normal((5, 33), np.float32))] for seed in range(3)]
    module = make()
    contender = Iree(row, module, sets, tmp_path / "small.vmfb", driver="local-task")
    for number in range(20):  # more than may be under way at once
        contender.launch(number % 3)
    contender.begin()
    contender.launch(1)
    assert contender.elapsed() > 0
    torch.testing.assert_close(contender.results()[0], module(sets[0][0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("make", "shape", "function"), [
    (lambda: gpu_models.Block(32, 4), (2, 7, 32), gpu_jax.encoder(4)),
    (lambda: gpu_models.Block(32, 2), (1, 5, 32), gpu_jax.encoder(2)),
    (lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.ReLU()), (2, 3, 5, 7),
     gpu_jax.convolution_relu),
])
def test_jax_computes_what_the_module_does(make: Any, shape: Any, function: Any) -> None:
    jax: Any = pytest.importorskip("jax", reason="needs JAX: make frameworks")
    module = with_pattern(make(), torch.float32)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    weights = {name: jax.numpy.asarray(tensor.numpy()) for name, tensor in module.state_dict().items()}
    made = function(jax, jax.numpy)(jax.numpy.asarray(x.numpy()), weights)
    np.testing.assert_allclose(np.asarray(made), module(x).numpy(), rtol=1e-4, atol=1e-5)


def test_8_bit_modules_give_the_reference_plainly_products_of_other_numbers() -> None:
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    for name in ("matmul-f8", "matmul-i8"):
        module = next(row for row in rows() if row.name == name).module()
        torch.testing.assert_close(flat(module(x, w))[0], x @ w.T)


def test_functions_are_modules() -> None:
    assert flat(Apply(lambda x: (x, x + 1))(torch.ones(2)))[1].tolist() == [2, 2]
