"""The page holds everything it shows, and nothing that a file says can act in it."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace
from tests.unit.tools.report.programs import diamond, manifest, relay, tensor, variant

from motet.artifact.schema import (
    Alternative,
    Command,
    KernelInfo,
    LogicalDevice,
    Manifest,
    Plan,
    Schedule,
    ScheduleBuffer,
    Signature,
    Step,
)
from motet.compiler.targets.rates import HOST, RateTable
from motet.errors import OptionError
from motet.tools.report.measured import Trace, TraceSpan
from motet.tools.report.page import PageSources, render

EVIL = '</script><script>alert(1)</script><img src=x onerror=alert(2)>"\'&\u2028${title}'


class Held:
    """What `render` asks of an artifact."""

    def __init__(self, content: Manifest) -> None:
        self.manifest = content
        self.data = b"12345"
        self.name = "test.motet"


class Page(HTMLParser):
    """Elements by tag, with their attributes; the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.found if name in (attributes.get("class") or "").split()]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(content: Manifest, trace: Trace | None = None, title: str = "test.motet") -> Page:
    return Page(render(Held(content), title, {}, PageSources(trace)))  # type: ignore[arg-type]


def test_every_operation_value_and_buffer_is_drawn() -> None:
    found = page(diamond()[0])
    assert len(found.of_class("node")) == 6
    assert len(found.of_class("edge")) == 6
    assert len(found.of_class("buffer")) == 3
    assert len(found.of_class("bar")) == 4
    rows = [attributes for tag, attributes in found.found if tag == "tr" and "data-flops" in attributes]
    assert sorted(int(row["data-flops"] or 0) for row in rows) == [5, 10, 20, 40]
    assert "arena 192 B; most alive at once 192 B (no plan is smaller)" in found.text


def test_everything_drawn_has_details() -> None:
    found = page(relay()[0])
    known = json.loads(found.scripts[0])
    keys = {attributes["data-o"] for _, attributes in found.found if "data-o" in attributes}
    assert keys and keys <= set(known)
    kernel = dict(next(lines for title, lines in known.values() if title == "q_kernel"))
    assert kernel["class"] == "contraction" and kernel["device"] == "@b · null" and kernel["work"] == "1 kFLOP"


def test_devices_have_lanes_and_transfers_are_marked() -> None:
    found = page(relay()[0])
    assert len(found.of_class("lane")) == 2
    assert len([node for node in found.of_class("node") if "transfer" in str(node["class"])]) == 2
    assert len(found.of_class("moved")) == 4
    assert "@b · null" in found.text and "run q" in found.text


def test_measured_spans_stand_beside_the_predicted_on_one_scale() -> None:
    spans = [
        TraceSpan("host", 0, "p_kernel", "launch", 0.0, 0.5, flops=300),
        TraceSpan("null", 1, "write", "write", 0.5, 0.6, 100, after=(0,)),
        TraceSpan("null", 0, "q_kernel", "launch", 0.6, 2.0, instructions=12345, after=(1,)),
        TraceSpan("null", 0, "read", "read", 2.0, 2.5, 100),
    ]
    devices = {"a": ("host", "host-target"), "b": ("null", "null-target")}
    trace = Trace("t.json", "main", spans, devices, memory={"null": [(0.5, 100), (0.6, 200)]})
    found = page(relay()[0], trace)
    drawn = {attributes["aria-label"]: attributes for tag, attributes in found.found if tag == "svg" and
             "aria-label" in attributes}
    assert float(drawn["timeline of main"]["data-seconds"] or 0) == 2.5
    bars = {str(bar["data-t"]): str(bar["width"]) for bar in found.of_class("bar")}
    assert bars["0.6 1.4"] == "56%"
    assert len(found.of_class("flow")) >= 2 and len(found.of_class("memory")) == 2
    assert "measured · 2.5 s" in found.text and "12,345" in found.text and "t.json" in found.text


def test_the_roof_bends_where_memory_and_arithmetic_meet() -> None:
    # A host of 600 GFLOP/s and 100 GB/s: its ridge is at 6 FLOP/B; p does 300 FLOP on 10 B, 0.3 GFLOP/s.
    trace = Trace("t.json", "main", [TraceSpan("host", 0, "p_kernel", "launch", 0.0, 1e-6)],
                  {"a": ("host", "host-target"), "b": ("null", "null-target")})
    rates = RateTable({"host": replace(HOST, contraction=6e11, memory=1e11)})
    found = Page(render(Held(relay()[0]), "", {}, PageSources(trace, rates=rates)))  # type: ignore[arg-type]
    roof = found.of_class("roof")[0]
    left, right, low, high = (math.log(float(value)) for value in str(roof["data-scales"]).split())
    bend = [float(number) for number in str(roof["points"]).split()[1].split(",")]
    assert bend[0] == pytest.approx(100 * (math.log(6) - left) / (right - left), abs=0.01)
    assert bend[1] == pytest.approx(100 - 100 * (math.log(6e11) - low) / (high - low), abs=0.01)
    (circle,) = [attributes for tag, attributes in found.found if tag == "circle"]
    assert float(str(circle["cx"])[:-1]) == pytest.approx(100 * (math.log(30) - left) / (right - left), abs=0.01)
    assert float(str(circle["cy"])[:-1]) == pytest.approx(100 - 100 * (math.log(3e8) - low) / (high - low), abs=0.01)


def test_names_that_are_markup_stay_text() -> None:
    signature = Signature(EVIL, [tensor(EVIL, 4)], [tensor(EVIL, 4)])
    region = Signature(EVIL, signature.inputs, signature.results)
    schedule = Schedule(
        [ScheduleBuffer("input", 16), ScheduleBuffer("result", 16)], [Command("dispatch", [0, 1], EVIL)]
    )
    code = variant("host", {EVIL: schedule}, [KernelInfo(EVIL, EVIL, 1, 1, EVIL)])
    plan = Plan(2, [0], [1], [0], [0], [Step("run", 0, [0], [1], EVIL)])
    content = manifest(
        [signature], [code], devices=[LogicalDevice(EVIL, [Alternative("host")])], plans={EVIL: plan},
        regions={EVIL: region},
    )
    found = page(content, title=EVIL)
    tags = [tag for tag, _ in found.found]
    assert tags.count("script") == 2 and "img" not in tags
    assert not any(name.startswith("on") for _, attributes in found.found for name in attributes)
    assert EVIL in json.loads(found.scripts[0])["f0o1"][0]
    assert " ".join(EVIL.split()) in found.text


def test_the_page_asks_nothing_of_the_network() -> None:
    text = render(Held(relay()[0]), "test.motet", {})  # type: ignore[arg-type]
    assert not re.search(r"""\b(?:src|href)\s*=\s*(?!["']?(?:data:|#))\S""", text)
    assert "@import" not in text and "url(" not in re.sub(r"url\(#\w+\)", "", text)
    assert "default-src 'none'" in text
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_every_function_has_its_section() -> None:
    content, signature = diamond()
    schedule = content.variants[0].schedules["main"]
    other = Signature("other", signature.inputs, signature.results)
    code = variant("host", {"main": schedule, "other": schedule}, content.variants[0].kernels)
    found = page(manifest([signature, other], [code]))
    assert [attributes.get("id") for attributes in found.of_class("function")] == ["f0", "f1"]
    assert len(found.of_class("node")) == 12


def test_a_program_without_functions_has_a_page() -> None:
    assert "What the file holds" in page(manifest([], [])).text


def test_dynamic_extents_are_said() -> None:
    assert "sizes here are for n = 64" in page(diamond("n")[0]).text


@pytest.mark.parametrize(("trace", "said"), [
    (Trace("t.json", "else", []), "it is of else; test.motet has main"),
    (Trace("t.json", "main", [], {"c": ("host", "host-target")}), "it has no device @a; there are: @c"),
    (Trace("t.json", "main", [], {"a": ("host", "host-target"), "b": ("null", "rv")}), "device null ran code for rv"),
])
def test_a_trace_of_another_program_is_refused(trace: Trace, said: str) -> None:
    with pytest.raises(OptionError, match="a trace of another program: " + said):
        page(relay()[0], trace)


def test_limits_that_are_not_measured_are_unknown() -> None:
    page = render(Held(relay()[0]), "", {}, PageSources(limits=lambda bound: None))  # type: ignore[arg-type]
    assert 'placeholder="unknown"' in page and "limit of its kernels" not in page
    page = render(Held(relay()[0]), "", {}, PageSources(limits=lambda bound: (7e9, 5e9)))  # type: ignore[arg-type]
    assert page.count('value="7"') == page.count('value="5"') >= 1
