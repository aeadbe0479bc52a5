"""What `python -m benchmarks.lab` shows of the peers' searches. The searches themselves need XTC and TVM:
tests/integration/test_against_xtc.py."""

import math

import numpy as np
import pytest
from benchmarks import lab_peers
from benchmarks.lab import listed_kernels
from benchmarks.xtc_peer import how_to_get_xtc
from benchmarks.xtc_search import expected


def test_failed_trials_count_and_other_lines_do_not():
    found = lab_peers.read_search(
        ['{"seconds": 0.5}', "a library says something", '{"error": "no tile"}', '{"seconds": 0.25}'], "")
    assert found == lab_peers.PeerSearch(0.5, (math.inf, 0.25), "no tile")


def test_a_search_without_any_line_has_the_reason_of_its_process():
    found = lab_peers.read_search([], "can't find library: omp")
    assert lab_peers.peer_row("matmul:1x1x1", "xtc mlir", found, ordered=False)[2:] == [
        "- (can't find library: omp)", "- (can't find library: omp)", "-", "0", "-"]


def test_trials_to_a_share_of_the_best():
    assert lab_peers.trials_to([3.0, 1.04, 1.0], ordered=True) == "2"
    assert lab_peers.trials_to([3.0, math.inf, 1.0], ordered=True) == "3"
    assert lab_peers.trials_to([1.0] * 7, ordered=False) == "1 / 1"


@pytest.mark.parametrize("kernel, words", [
    ("matmul:8x8x8xf16", "f32 without padding"), ("conv2d:1x8x8x3,3x3x3x4:pad=1", "f32 without padding"),
    ("layernorm:4x8", "XTC has no strategy for layernorm"),
])
def test_kernels_without_a_peer_have_a_reason(kernel: str, words: str):
    rows = lab_peers.peer_rows(kernel, "python-that-is-not-run", 4)
    assert words in rows[0][2]
    assert all(len(row) == len(lab_peers.COLUMNS) and "" not in row for row in rows)


def test_listed_convolutions_have_the_results_of_the_padded_ones():
    texts = {names: text for text, names in listed_kernels().items()}
    assert texts["conv2d:ResNet18_02"] == "conv2d:1x58x58x64,3x3x64x64"
    assert texts["conv2d:AlexNet_00"] == "conv2d:1x238x238x3,11x11x3x64:stride=4"
    assert texts["matmul:AlexNet_FC8"] == "matmul:1x1000x4096"


def test_expected_results_agree_with_a_direct_sum():
    random = np.random.default_rng(3)
    image, filters = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 6, 5, 2), (3, 2, 2, 4)))
    found = expected("conv2d", [image, filters], 2)
    assert found.shape == (1, 2, 2, 4)
    np.testing.assert_allclose(found[0, 1, 1, 3], (image[0, 2:5, 2:4] * filters[..., 3]).sum(), rtol=1e-5)
    found = expected("depthwise_conv2d", [image, filters[..., 0]], 1)
    np.testing.assert_allclose(found[0, 0, 0, 1], (image[0, :3, :2, 1] * filters[:, :, 1, 0]).sum(), rtol=1e-5)


@pytest.mark.parametrize("given, words", [(None, "XTC_PYTHON is not set"), ("/no/python", "/no/python is no program")])
def test_without_xtc_one_line_says_how_to_get_it(given: str | None, words: str, monkeypatch: pytest.MonkeyPatch):
    if given is None:
        monkeypatch.delenv("XTC_PYTHON", raising=False)
    else:
        monkeypatch.setenv("XTC_PYTHON", given)
    line = how_to_get_xtc()
    assert words in line and "pip install 'xtc-tools[tvm,mlir]==0.3.2'" in line and "\n" not in line
