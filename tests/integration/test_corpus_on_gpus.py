"""The wide table on GPUs, as far as it needs none: its rows, how they are prepared, how its results are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
pytest.importorskip("timm", reason="needs timm: make frameworks")

from benchmarks.corpus import gpu  # noqa: E402 - they need torch
from benchmarks.corpus.__main__ import main  # noqa: E402
from benchmarks.corpus.table import markdown  # noqa: E402
from benchmarks.gpu_gate import COUNT, FIGURES, Figure, best, chosen, slower  # noqa: E402

MACHINE = {"machine": {"device": "NVIDIA H200", "torch": "2", "cuda": "13", "bandwidth": 4e12}}
NAME = "linear 77×576→192"


def plan(*names: str) -> gpu.Plan:
    return gpu.Plan(1, 5, names, "cuda:0", ["eager", "compile"], 3, 0.01)


def line(row: str, own: float, peer: float, error: float = 0.0) -> dict[str, Any]:
    return {"row": row, "seconds": 1.0, "peers": {
        "Motet": {"min": own, "median": own, "error": error, "kernels": [["k", own]]},
        "eager": {"min": peer, "median": peer, "error": 0.0},
        "compile": {"absent": "RuntimeError: no"}}}


def test_rows_are_as_many_as_promised_and_have_files_of_their_own():
    rows = gpu.gpu_corpus(1, 30)
    assert len(rows) >= 300 and len({row.file for row in rows.values()}) == len(rows)
    assert sum(row.family == "network" for row in rows.values()) >= 40


def test_a_row_in_bf16_has_weights_and_inputs_in_bf16():
    rows = gpu.gpu_corpus(1, 5)
    module, (x,) = rows[f"{NAME} bf16"].module()
    assert x.dtype == torch.bfloat16 and {weight.dtype for weight in module.parameters()} == {torch.bfloat16}


def test_the_work_of_a_row_is_counted():
    row = gpu.gpu_corpus(1, 5)[NAME]
    work = gpu.count_work(row, *row.module())
    assert work == {"flops": 2 * 77 * 576 * 192, "bytes": 4 * (77 * 576 + 576 * 192 + 192 + 77 * 192)}


def results(folder: Path, *lines: Any) -> str:
    rows = gpu.gpu_corpus(1, 5)
    (folder / gpu.RESULTS).write_text("".join(json.dumps(each) + "\n" for each in (MACHINE, *lines)))
    for each in lines:
        (folder / f"{each['row']}.json").write_text(json.dumps(
            {"flops": 17e6, "bytes": 4e6, "kernels": {"k": ["contraction", "operation linalg.matmul"]}}))
    names = [name for name, row in rows.items() if any(row.file == each["row"] for each in lines)]
    return markdown(gpu.report(plan(*names), folder))


def test_results_become_the_wide_table(tmp_path: Path):
    file = gpu.gpu_corpus(1, 5)[NAME].file
    text = results(tmp_path, line(file, 2e-6, 1e-6))
    assert "### cuda:0" in text and "Limits: 66900 GFLOP/s in f32, 4000.0 GB/s." in text
    assert f"| {NAME} | 0.50 | 50% | 100% | contraction 100% (operation linalg.matmul) |" in text
    assert "Not met: worst row 0.50 (goal 0.8)." in text
    assert f"- {NAME}, compile: RuntimeError: no" in text


def test_a_wrong_result_counts_as_none(tmp_path: Path):
    file = gpu.gpu_corpus(1, 5)[NAME].file
    text = results(tmp_path, line(file, 1e-6, 2e-6, error=0.1))
    assert f"- {NAME}, Motet: wrong: off by 1.0e-01" in text and "worst row 0.00" in text


@pytest.mark.parametrize(("words", "said"), [
    (["--device", "cuda:1"], "--device cuda:1: expected cuda:0; CUDA_VISIBLE_DEVICES chooses another GPU"),
    (["--device", "cuda:0", "--prepare"], "--prepare: expected --target with the architecture of the GPU"),
    (["--device", "cuda:0", "--peers", "OpenVINO"], "--peers OpenVINO: not on cuda:0; expected eager, graph"),
    (["--device", "host", "--peers", "eager"], "--peers eager: not on host; expected torch (oneDNN)"),
])
def test_what_does_not_fit_the_device_is_refused(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
):
    monkeypatch.setattr("sys.argv", ["corpus", *words, "--folder", str(tmp_path / "none")])
    with pytest.raises(SystemExit):
        main()
    assert said in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_the_gate_has_rows_of_every_family_and_figures_of_them():
    rows, names = gpu.gpu_corpus(0, 0), chosen()
    assert len(set(names)) == COUNT
    assert {rows[name].family for name in names} == {row.family for row in rows.values()}
    for device, known in json.loads(FIGURES.read_text()).items():
        assert set(known["rows"]) <= rows.keys(), device
        figures = [Figure(*stored) for stored in known["rows"].values()]
        assert sum(isinstance(figure.value, float) and len(figure.code) == 16 for figure in figures) >= COUNT - 6


def test_the_gate_names_what_is_slower_than_before():
    before = {"same": 1.5, "faster": 1.0, "slower": 2.0, "noise": 2.0, "refused": 1.0, "gone": 1.0, "no": "off by 1e-1"}
    now = {"same": 1.46, "faster": 3.0, "slower": 1.9, "noise": 1.0, "refused": "CompileError: no", "no": "off by 1e-1"}
    codes = {"slower": "changed"}  # what runs the same code is not slower
    assert slower({name: Figure(value, "code") for name, value in before.items()},
                  {name: Figure(value, codes.get(name, "code")) for name, value in now.items()}) == [
        "slower: 1.90, 0.95 of the 2.00 of before", "refused: CompileError: no; 1.00 before",
        "gone: not measured; 1.00 before",
    ]
    assert best({"a": Figure(1.0), "b": Figure("off"), "c": Figure(2.0)}, {"a": Figure(2.0), "b": Figure(3.0)}) == {
        "a": Figure(2.0), "b": Figure(3.0), "c": Figure(2.0)}
