"""Pages of real programs, as a browser shows them."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.browser import WIDTHS, is_as_it_was, needs_browser, shown
from tests.integration.conftest import run_motet

pytestmark = pytest.mark.usefixtures("all_levels")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# A chain with a branch, on two devices of which the second is a model of one: no emulator is needed.
BRANCHES = """
module {
  "motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
  "motet.device"() {sym_name = "acc", alternatives = ["null"]} : () -> ()
  func.func @main(%x: tensor<33x65xf32>, %w: tensor<65x17xf32>) -> tensor<33x17xf32> {
    %zero = arith.constant 0.0 : f32
    %shape = tensor.empty() : tensor<33x65xf32>
    %small = linalg.abs ins(%x : tensor<33x65xf32>) outs(%shape : tensor<33x65xf32>) -> tensor<33x65xf32>
    %empty = tensor.empty() : tensor<33x17xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<33x17xf32>) -> tensor<33x17xf32>
    %product = linalg.matmul {motet.affinity = "acc"}
      ins(%small, %w : tensor<33x65xf32>, tensor<65x17xf32>) outs(%init : tensor<33x17xf32>) -> tensor<33x17xf32>
    %root = linalg.exp {motet.affinity = "cpu"} ins(%product : tensor<33x17xf32>) outs(%empty : tensor<33x17xf32>)
      -> tensor<33x17xf32>
    return %root : tensor<33x17xf32>
  }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`branches.motet`, a trace of it, and their page `branches.html`."""
    place = tmp_path_factory.mktemp("report")
    (place / "branches.mlir").write_text(BRANCHES)
    for arguments in (
        ("compile", "branches.mlir"),
        ("run", "branches.motet", "--input", "33x65xf32=random:1", "--input", "65x17xf32=random:2", "--trace",
         "branches.json"),
        ("inspect", "branches.motet", "--html", "branches.html", "--trace", "branches.json"),
    ):
        outcome = run_motet(*arguments, folder=place)
        assert outcome.returncode == 0, outcome.stderr
    return place


def test_the_trace_says_what_the_page_needs(folder: Path) -> None:
    content = json.loads((folder / "branches.json").read_text())
    phases = [event["ph"] for event in content["traceEvents"] if event.get("cat") != "core"]
    assert phases.count("X") == 6  # three kernels, the two that go to the device, the one that comes back
    assert phases.count("s") == phases.count("f") >= 2
    assert content["otherData"]["inputs"] == [[33, 65], [65, 17]]
    launches = {e["name"]: e["args"] for e in content["traceEvents"] if e.get("cat") == "launch"}
    assert max(args["flops"] for args in launches.values()) >= 2 * 33 * 65 * 17
    moved = sorted(e["args"]["bytes"] for e in content["traceEvents"] if e.get("cat") in ("read", "write"))
    assert moved == sorted([4 * 33 * 65, 4 * 65 * 17, 4 * 33 * 17])


@needs_browser
def test_a_browser_shows_the_page_without_complaint(folder: Path, tmp_path: Path) -> None:
    dom, console = shown(folder / "branches.html", tmp_path)
    assert console == []
    assert len(re.findall(r'class="node kernel', dom)) == 3
    assert len(re.findall(r'class="node transfer', dom)) >= 2
    assert len(re.findall(r'class="lane"', dom)) == 2
    assert "predicted" in dom and "measured" in dom
    legend = set(re.findall(r'<i class="dot k-\w+"></i>(\w+)</span>', dom))
    assert {"contraction", "loops", "transfer"} <= legend <= {"contraction", "loops", "transfer", "copy", "idle"}
    rows = re.findall(r'<div class="row"[^>]*>([^<]*)<i>([^<]*)</i>', dom)
    queues = {(device, text.split(",")[0]) for device, text in rows}
    assert ("null ", "queue 1") in queues and ("host ", "queue 0") in queues
    assert all(re.search(r"\d %? busy$|memory, ", text) for _, text in rows)
    assert len(re.findall(r'class="flow"', dom)) >= 4
    assert re.search(r'<g class="view" transform="translate\([^)]+\) scale\([\d.]+\)"', dom)  # its script has run


# What a script finds out about a page: whether it is wider than the window, how high the graph is, and texts that are
# wider than their nodes.
MEASURE = """<script>
  const facts = { wide: document.documentElement.scrollWidth - innerWidth, room: innerWidth };
  facts.high = Math.round(document.querySelector(".canvas").getBoundingClientRect().height);
  facts.nodes = Array.from(document.querySelectorAll(".level:not([hidden]) .node")).map((node) => {
    const box = node.querySelector(".box").getBoundingClientRect();
    return Array.from(node.querySelectorAll("text")).every((text) => {
      const own = text.getBoundingClientRect();
      return own.left >= box.left - 1 && own.right <= box.right + 1;
    });
  });
  facts.labels = Array.from(document.querySelectorAll(".level:not([hidden]) .kernel text"), (text) => text.textContent);
  document.body.dataset.facts = JSON.stringify(facts);
</script></body>"""


def measured(page: Path, folder: Path, width: int) -> dict[str, Any]:
    other = folder / "measured.html"
    other.write_text(page.read_text().replace("</body>", MEASURE))
    dom, console = shown(other, folder / "profile", width)
    assert console == []
    found = re.search(r'data-facts="([^"]*)"', dom)
    assert found is not None
    return json.loads(html.unescape(found[1]))


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_windows_of_any_width(folder: Path, tmp_path: Path, width: int) -> None:
    facts = measured(folder / "branches.html", tmp_path, width)
    assert facts["room"] == width and facts["wide"] <= 0
    assert facts["high"] >= 260
    assert facts["nodes"] and all(facts["nodes"])
    assert {"…linalg.abs", "…linalg.matmul", "…linalg.exp"} <= set(facts["labels"])
    assert not any(label.startswith("…") and "linalg" not in label for label in facts["labels"])


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_looks_as_it_did(folder: Path, tmp_path: Path, width: int) -> None:
    rates = dict.fromkeys(("contraction", "convolution", "elementwise", "reduction", "generic", "memory"), 1e9)
    (tmp_path / "rates.json").write_text(json.dumps({"host": rates, "null": rates}))
    (tmp_path / "branches.motet").write_bytes((folder / "branches.motet").read_bytes())
    outcome = run_motet("inspect", "branches.motet", "--html", "p.html", "--rates", "rates.json", folder=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    is_as_it_was(tmp_path / "p.html", "report", width, tmp_path)


@needs_browser
def test_two_traces_are_compared_and_found_by_name(folder: Path, tmp_path: Path) -> None:
    outcome = run_motet(
        "bench", folder / "branches.motet", "--min-time", "0.05", "--trace", "again.json", folder=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    outcome = run_motet("inspect", folder / "branches.motet", "--html", "p.html", "--trace", folder / "branches.json",
                        "--trace", "again.json", folder=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    keys = """<script>
      const key = (target, key) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      const field = document.getElementById("search");
      field.value = "matmul";
      field.dispatchEvent(new Event("input"));
      key(field, "Enter");
      document.body.dataset.found = document.getElementById("found").textContent;
      document.body.dataset.hits = document.querySelectorAll(".node.hit").length;
      document.body.dataset.chosen = document.querySelector(".details h4").textContent;
      const node = document.querySelector(".node.input");
      node.focus();
      key(node, "ArrowDown");
      document.body.dataset.below = document.activeElement.dataset.o;
      key(document.body, "t");
      key(document.body, "?");
    </script></body>"""
    page = tmp_path / "p.html"
    page.write_text(page.read_text().replace("</body>", keys))
    dom, console = shown(page, tmp_path / "profile")
    assert console == []
    assert 'data-found="1 of 1"' in dom and 'data-hits="1"' in dom
    chosen = re.search(r'data-chosen="([^"]*)"', dom)
    assert chosen is not None and "linalg.matmul" in chosen[1]
    assert re.search(r'data-below="f0o[1-9]', dom)
    assert '<html lang="en" data-theme="light"' in dom and '<dl id="keys" class="facts">' in dom
    assert "now ÷ before" in dom and "before ·" in dom and 'class="bar k-idle"' in dom
    assert "by motet bench" in dom and "by motet run" in dom


@needs_browser
def test_a_click_shows_what_is_known(folder: Path, tmp_path: Path) -> None:
    text = (folder / "branches.html").read_text()
    click = """<script>
      document.querySelector(".node.kernel.k-contraction, .node.kernel.k-rows").dispatchEvent(new MouseEvent("click"));
      document.querySelector('[data-time="in"]').click();
      document.querySelector("input[data-rate=flops]").value = "0.001";
      document.querySelector("input[data-rate=flops]").dispatchEvent(new Event("input"));
      document.querySelectorAll(".kernels th")[2].click();
      document.querySelector('[data-zoom="in"]').click();
    </script></body>"""
    page = tmp_path / "clicked.html"
    page.write_text(text.replace("</body>", click))
    dom, console = shown(page, tmp_path / "profile")
    assert console == []
    details = dom[dom.index('<aside class="details"') :].split("</aside>")[0]
    assert "made of" in details and "FLOP" in details
    assert "limit" not in details  # nobody measured those of the null device
    assert "width: 200%" in dom
    roof = re.compile(r'class="roof" data-device="0"[^>]*points="([^"]*)"')
    assert roof.findall(dom) and roof.findall(dom) != roof.findall(text)


@needs_browser
def test_a_name_that_is_a_script_is_not_run(add: Path, motet: Callable[..., object], tmp_path: Path) -> None:
    evil = '"</script><script>document.title=1</script><img src=x onerror=document.title=2>"'
    text = add.read_text().replace("@main", "@" + evil)
    (tmp_path / "evil.mlir").write_text(text)
    motet("inspect", "evil.mlir", "--html", "evil.html")
    dom, console = shown(tmp_path / "evil.html", tmp_path / "profile")
    assert console == [] and "<title>evil.mlir</title>" in dom
    assert "<img" not in dom and dom.count("<script") == 2
    assert "&lt;img src=x" in dom


def test_a_page_is_small_and_whole(folder: Path) -> None:
    text = (folder / "branches.html").read_text()
    assert len(text) < 100_000 and text.rstrip().endswith("</html>")


@pytest.mark.slow
@needs_browser
def test_a_network_has_a_page_that_a_browser_takes(tmp_path: Path) -> None:
    pytest.importorskip("onnx", exc_type=ImportError)
    models = [sys.executable, str(EXAMPLES / "models.py"), "resnet18", str(tmp_path / "resnet18.onnx")]
    subprocess.run(models, check=True, capture_output=True)
    for arguments in (
        ("compile", "resnet18.onnx"), ("bench", "resnet18.motet", "--min-time", "0.1", "--trace", "trace.json"),
        ("inspect", "resnet18.motet", "--html", "page.html", "--trace", "trace.json"),
    ):
        outcome = run_motet(*arguments, folder=tmp_path)
        assert outcome.returncode == 0, outcome.stderr
    assert (tmp_path / "page.html").stat().st_size < 300_000
    dom, console = shown(tmp_path / "page.html", tmp_path / "profile")
    assert console == []
    # 20 convolutions, the first pooling, the last one and the classifier; eight residual sums are fused.
    assert len(re.findall(r'class="node kernel', dom)) == 23
    assert "1x64x112x112xf32" in dom and "most alive at once" in dom


def test_a_program_is_compiled_for_its_page(motet: Callable[..., subprocess.CompletedProcess[str]], add: Path,
                                            tmp_path: Path) -> None:
    outcome = motet("inspect", add.name, "--html", "add.html")
    assert (outcome.returncode, outcome.stdout) == (0, "")
    assert "3x5xf32" in (tmp_path / "add.html").read_text()


def test_bench_traces_a_call_too(motet: Callable[..., subprocess.CompletedProcess[str]], compiled: Path,
                                 tmp_path: Path) -> None:
    outcome = motet("bench", compiled / "add.motet", "--min-time", "0.01", "--trace", "t.json")
    assert outcome.returncode == 0, outcome.stderr
    assert motet("inspect", compiled / "add.motet", "--html", "add.html", "--trace", "t.json").returncode == 0
    assert "measured ·" in (tmp_path / "add.html").read_text()


def rates(folder: Path, text: str) -> Path:
    path = folder / "rates.json"
    path.write_text(text)
    return path


def test_limits_are_those_of_the_rates_given(motet: Callable[..., subprocess.CompletedProcess[str]], compiled: Path,
                                             tmp_path: Path) -> None:
    slow = dict.fromkeys(("contraction", "convolution", "elementwise", "reduction", "generic"), 1000.0)
    given = rates(tmp_path, json.dumps({"host": {**slow, "memory": 1e4}}))
    assert motet("inspect", compiled / "add.motet", "--html", "a.html", "--rates", given).returncode == 0
    limits = re.findall(r'class="n limit" data-v="([^"]*)"', (tmp_path / "a.html").read_text())
    assert float(limits[0]) == max(15 / 1e3, 3 * 60 / 1e4)  # an operation and three floats for each of 15 elements


def test_mistakes_are_one_line(fails: Callable[..., str], compiled: Path, folder: Path, tmp_path: Path) -> None:
    add = compiled / "add.motet"
    (tmp_path / "no.json").write_text("{}")
    assert "no.json: is no trace of a call" in fails("inspect", add, "--html", "a.html", "--trace", "no.json")
    assert "none.json: cannot be read" in fails("inspect", add, "--html", "a.html", "--trace", "none.json")
    assert "a trace of another program" in fails(
        "inspect", add, "--html", "a.html", "--trace", folder / "branches.json")
    assert "nowhere/a.html: cannot be written" in fails("inspect", add, "--html", "nowhere/a.html")
    assert "expected --html" in fails("inspect", add, "--trace", folder / "branches.json")
    three = ("--trace", "a.json") * 3
    assert "3 traces given; expected one, or two" in fails("inspect", add, "--html", "a.html", *three)
    given = rates(tmp_path, '{"host": {"flops": 1}}')
    assert "no rate flops" in fails("inspect", add, "--html", "a.html", "--rates", given)
    assert "is no file of rates" in fails("inspect", add, "--html", "a.html", "--rates", rates(tmp_path, "\x00"))
    assert "cannot be read" in fails("inspect", add, "--html", "a.html", "--rates", "none.json")
    assert "not with --json" in fails("inspect", add, "--html", "a.html", "--json")
    assert not (tmp_path / "a.html").exists()
