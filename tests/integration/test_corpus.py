"""The wide table of operators and networks: its rows, its comparison with references, its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from benchmarks.corpus.networks import network_rows  # noqa: E402 - they need torch
from benchmarks.corpus.operators import fresh_rows, operator_rows  # noqa: E402
from benchmarks.corpus.row import Family, Row  # noqa: E402
from benchmarks.corpus.subject import load_facts, load_inputs, load_results, prepare, wrong  # noqa: E402
from benchmarks.corpus.table import markdown, results  # noqa: E402

LIMITS = {"peak": 1e11, "bandwidth": 1e10}


def report(**rows: Any) -> dict[str, Any]:
    host = {"processor": "P", "cores": 1, "memory": 1, "date": "D", "python": "3", "versions": {}, "command": "c"}
    return {"machine": host, "plan": {"seed": 1, "peers": ["Motet", "onnxruntime", "OpenVINO default"]},
            "limits": {"1": LIMITS}, "rows": {"1": rows}}


def entry(**answers: float | str) -> dict[str, Any]:
    """A row of 1 ms by its bytes; a text is why a contender has no time."""
    names = {"motet": "Motet", "ort": "onnxruntime", "default": "OpenVINO default"}
    return {
        "family": "linear", "dtype": "f32", "fresh": False, "flops": 0, "bytes": 1e7,
        "answers": {names[key]: {"absent": value} if isinstance(value, str) else {"min": value, "median": value}
                    for key, value in answers.items()},
        "kernels": [{"class": "generic", "calls": 1, "seconds": 1.0, "source": "operation scf.for"}],
    }


def test_rows_are_as_many_as_promised_and_have_folders_of_their_own():
    operators, networks = operator_rows(), network_rows()
    assert len(operators) >= 150 and len(networks) >= 40
    assert len({row.file for row in (*operators, *networks)}) == len(operators) + len(networks)
    assert sum(row.quick for row in (*operators, *networks)) == 27  # and three fresh ones


def test_fresh_rows_follow_from_the_seed():
    assert [row.name for row in fresh_rows(4, 20)] == [row.name for row in fresh_rows(4, 20)]
    assert [row.name for row in fresh_rows(4, 20)] != [row.name for row in fresh_rows(5, 20)]
    for row in fresh_rows(4, 20):
        module, inputs = row.module()
        module(*inputs)


def test_a_row_has_the_same_weights_and_inputs_in_every_process():
    row = next(row for row in operator_rows() if row.name == "linear 77×576→192")
    (first, x), (second, y) = row.module(), row.module()
    assert torch.equal(x[0], y[0]) and torch.equal(first.weight, second.weight)


@pytest.mark.parametrize(("found", "why"), [
    ([np.array([1, 2], np.float32)], None),
    ([np.array([1, 2.1], np.float32)], "off by 5.0e-02"),
    ([np.array([1, np.nan], np.float32)], "off by nan"),
    ([np.array([[1, 2]], np.float32)], "shape (1, 2), expected (2,)"),
    ([], "0 results, expected 1"),
])
def test_results_are_compared_with_the_reference(found: list[Any], why: str | None):
    assert wrong(Row("r", "f"), found, [np.array([1.0, 2.0])], 1e-3) == why


def test_a_subject_has_its_model_its_reference_and_its_work(tmp_path: Path):
    pytest.importorskip("onnxscript")
    row = Family("linear").layer("linear 3×5→7", lambda: torch.nn.Linear(5, 7), (3, 5))
    prepare(row, tmp_path)
    (x,), (y,) = load_inputs(row, tmp_path), load_results(row, tmp_path)
    module: Any = row.module()[0]
    weight, bias = (tensor.detach().numpy().astype(np.float64) for tensor in (module.weight, module.bias))
    np.testing.assert_allclose(y, x @ weight.T + bias, rtol=1e-12)
    facts = load_facts(row, tmp_path)
    assert facts["flops"] == 2 * 3 * 5 * 7 and facts["bytes"] == 4 * (3 * 5 + 5 * 7 + 7 + 3 * 7)
    assert (tmp_path / row.file / "model.onnx").exists()


def test_ratios_are_to_the_best_peer_in_equal_precision():
    (found,) = results({"r": entry(motet=2e-3, ort=3e-3, default=1e-4)}, LIMITS)
    assert found.ratio == pytest.approx(1.5) and found.roof == pytest.approx(0.5)


def test_a_row_without_a_result_is_the_worst_one():
    text = markdown(report(slow=entry(motet=2e-3, ort=1e-3), none=entry(motet="CompileError: no", ort=1e-3)))
    lines = text.splitlines()
    first = lines.index("| worst rows | best peer ÷ Motet | Motet, of the roof | peer, of the roof | reason |") + 2
    assert lines[first : first + 2] == [
        "| none | 0.00 | 0% | 100% | CompileError: no |",
        "| slow | 0.50 | 50% | 100% | generic 100% (operation scf.for) |",
    ]
    assert "- none, Motet: CompileError: no" in lines
    assert "- 2 rows with a peer: ahead in 0%, level in 0%, behind in 100%." in lines


def test_goals_are_met_by_the_peer_or_by_the_roof():
    text = markdown(report(ahead=entry(motet=2e-3, ort=3e-3), full=entry(motet=1.05e-3, ort=1.2e-3)))
    assert "Met: 100% of rows at 0.95 of the best peer or 0.9 of the roof" in text
    assert "Met: worst row 1.14" in text and "Met: mean 1.50 over the 1 rows" in text
