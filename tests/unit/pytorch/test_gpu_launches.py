"""Programs for GPUs keep their launches and the bytes that these move: `benchmarks/gpu_launches.json`."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
pytest.importorskip("torch_mlir", reason="needs the compiler: pip install 'motet[compile]'")

from benchmarks.corpus.gpu import gpu_corpus  # noqa: E402
from benchmarks.gpu_launches import COUNT, FIGURES, launches_of, more  # noqa: E402

STORED = json.loads(FIGURES.read_text()).items()
KNOWN = {name: tuple(found) if isinstance(found, list) else found for name, found in STORED}
FEW = tuple(KNOWN)[3::60]


def test_the_rows_are_of_the_corpus() -> None:
    assert len(KNOWN) == COUNT and KNOWN.keys() <= gpu_corpus(0, 0).keys()
    assert sum(isinstance(found, tuple) for found in KNOWN.values()) >= COUNT - 4


def test_what_got_more_is_named() -> None:
    before = {"same": (2, 10), "fewer": (3, 10), "launches": (1, 10), "bytes": (1, 1000), "refused": (1, 1), "no": "no"}
    now = {"same": (2, 10), "fewer": (2, 9), "launches": (2, 10), "bytes": (1, 1001), "refused": "CompileError: no"}
    assert more(before, now) == [
        "launches: 2 launches; 1 before", "bytes: 1,001 bytes; 1,000 before",
        "refused: CompileError: no; 1 launches before",
    ]


@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(KNOWN), marks=pytest.mark.slow)], ids=["few", "all"])
def test_rows_get_no_more_than_before(names: tuple[str, ...]) -> None:
    assert more({name: KNOWN[name] for name in names}, launches_of(names)) == []
