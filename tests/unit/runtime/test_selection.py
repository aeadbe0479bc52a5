"""What fills the devices of a program, on machines that are made up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from motet.artifact.schema import Alternative, LogicalDevice, Variant
from motet.cpu_features import machine
from motet.errors import ArtifactError, DeviceError
from motet.runtime import device as device_module
from motet.runtime.device import DeviceInfo, find_device
from motet.runtime.selection import bind, describe_choice, needed_families

HOST = DeviceInfo("Processor", "host", family="host", host_memory=True)
CUDA = [
    DeviceInfo(f"GPU {i}", f"cuda:{i}", family="cuda", ordinal=i, uuid=f"GPU-{i}{i}{i}") for i in range(2)
]
NO_HIP = DeviceInfo("hip", "hip", family="hip", available=False, reason="libamdhip64.so not found")
RISCV = DeviceInfo("QEMU", "riscv:qemu", family="riscv")


def code(family: str, target: str = "", *features: str) -> Variant:
    triple = f"{machine()}-unknown-linux-gnu"
    return Variant(family, target or f"{family}-any", triple, list(features), [], {})


def logical(name: str, *alternatives: str) -> LogicalDevice:
    """`cuda`, `cuda[1]` and `@other`, as on the command line."""
    made: list[Alternative] = []
    for text in alternatives:
        family, bracket, ordinal = text.rstrip("]").partition("[")
        if text.startswith("@"):
            made.append(Alternative(fallback=text[1:]))
        else:
            made.append(Alternative(family, int(ordinal) if bracket else None))
    return LogicalDevice(name, made)


def uris(
    devices: Sequence[LogicalDevice], present: Sequence[DeviceInfo], bindings: dict[str, str] | None = None,
    variants: Sequence[Variant] = (code("cuda"), code("host"), code("riscv"), code("hip")),
) -> list[str]:
    return [choice.info.uri for choice in bind(devices, variants, bindings or {}, present)]


# -- alternatives ----------------------------------------------------------------------------------


def test_alternatives_are_tried_in_order():
    assert uris([logical("a", "hip", "cuda", "host")], [HOST, *CUDA, NO_HIP]) == ["cuda:0"]
    assert uris([logical("a", "hip", "host", "cuda")], [HOST, *CUDA, NO_HIP]) == ["host"]


def test_an_ordinal_picks_that_device_of_its_family():
    assert uris([logical("a", "cuda[1]")], [HOST, *CUDA]) == ["cuda:1"]
    assert uris([logical("a", "cuda[2]", "host")], [HOST, *CUDA]) == ["host"]
    assert uris([logical("a", "cuda[0]"), logical("b", "cuda[0]")], CUDA) == ["cuda:0", "cuda:0"]


def test_devices_without_ordinals_spread_over_a_family():
    devices = [logical("a", "cuda"), logical("b", "cuda"), logical("c", "cuda")]
    assert uris(devices, [HOST, *CUDA]) == ["cuda:0", "cuda:1", "cuda:0"]
    notes = [choice.note for choice in bind(devices, [code("cuda")], {}, CUDA)]
    assert notes[:2] == ["", ""] and "shares cuda:0 with @a" in notes[2]


def test_an_ordinal_takes_nothing_from_those_without():
    assert uris([logical("a", "cuda[0]"), logical("b", "cuda")], CUDA) == ["cuda:0", "cuda:0"]


def test_a_fallback_is_what_the_other_device_was_filled_with():
    devices = [logical("gpu", "hip", "@cpu"), logical("cpu", "riscv", "host")]
    assert uris(devices, [HOST, NO_HIP, RISCV]) == ["riscv:qemu", "riscv:qemu"]
    assert uris(devices, [HOST, NO_HIP, RISCV], {"cpu": "host"}) == ["host", "host"]
    gpu, cpu = bind(devices, [code("riscv")], {}, [RISCV])
    assert gpu.note == "it falls back to riscv:qemu: hip (no hip device is present)" and cpu.note == ""


def test_a_device_without_code_is_passed_over():
    choices = bind([logical("a", "cuda", "host")], [code("host")], {}, [HOST, *CUDA])
    assert [choice.info.uri for choice in choices] == ["host"]


def test_the_first_variant_that_the_device_runs_is_chosen():
    variants = [code("host", "future", "feature-of-2090"), code("cuda"), code("host", "old"), code("host", "older")]
    assert bind([logical("a", "host")], variants, {}, [HOST])[0].variant.target == "old"
    choices = bind([logical("a", "cuda", "host")], variants, {}, [HOST, *CUDA], obstacle=lambda info, variant: (
        "broken" if info.family == "cuda" else None))
    assert choices[0].variant.target == "future"


def test_cpu_is_an_older_name_of_host():
    assert uris([logical("a", "cpu")], [HOST], variants=[code("cpu")]) == ["host"]


def test_what_else_could_run_follows_in_order_and_once():
    devices = [logical("gpu", "hip", "cuda", "cuda[1]", "cuda[0]", "riscv", "@cpu"), logical("cpu", "host")]
    gpu, cpu = bind(devices, [code("cuda"), code("host"), code("riscv")], {}, [HOST, *CUDA, NO_HIP, RISCV])
    assert gpu.info.uri == "cuda:0"
    assert [(item.info.uri, item.variant.family) for item in gpu.further] == [
        ("cuda:1", "cuda"), ("riscv:qemu", "riscv"), ("host", "host"),
    ]
    assert cpu.further == ()


def test_an_artifact_without_devices_has_one_without_a_name():
    assert uris([], [HOST, *CUDA]) == ["cuda:0"]
    assert uris([], [HOST, *CUDA], {"": "host"}) == ["host"]
    assert uris([], [HOST], variants=[code("cuda"), code("host")]) == ["host"]


# -- bindings --------------------------------------------------------------------------------------


def test_a_binding_names_a_device_by_uri_or_uuid():
    devices = [logical("gpu", "cuda"), logical("cpu", "host")]
    assert uris(devices, [HOST, *CUDA], {"gpu": "cuda:1"}) == ["cuda:1", "host"]
    assert uris(devices, [HOST, *CUDA], {"gpu": "GPU-111"}) == ["cuda:1", "host"]
    assert uris(devices, [HOST, *CUDA], {"gpu": "cuda:GPU-111"}) == ["cuda:1", "host"]
    assert uris(devices, [HOST, *CUDA], {"gpu": "cuda"}) == ["cuda:0", "host"]


def test_a_binding_without_a_name_binds_all_that_are_not_named():
    devices = [logical("gpu", "cuda"), logical("cpu", "host"), logical("other", "cuda")]
    assert uris(devices, [HOST, *CUDA], {"": "host"}) == ["host"] * 3
    assert uris(devices, [HOST, *CUDA], {"": "host", "gpu": "cuda:1"}) == ["cuda:1", "host", "host"]


def test_what_is_bound_is_taken_and_has_no_alternatives_if_it_is_required():
    devices = [logical("a", "cuda", "host"), logical("b", "cuda", "host")]
    a, b = bind(devices, [code("cuda"), code("host")], {"b": "cuda:0?stream=1"}, [HOST, *CUDA])
    assert (a.info.uri, b.info.uri) == ("cuda:1", "cuda:0?stream=1")
    assert [item.info.uri for item in a.further] == [item.info.uri for item in b.further] == ["host"]
    a, b = bind(devices, [code("cuda"), code("host")], {"b": "cuda:0?stream=1&required=true"}, [HOST, *CUDA])
    assert (b.info.uri, b.further) == ("cuda:0?stream=1", ())


def test_options_of_a_uri_come_along():
    null = DeviceInfo("modelled", "null", family="null")
    assert uris([logical("a", "host")], [HOST, null], {"a": "null?latency=1"}, [code("null")]) == ["null?latency=1"]


# -- mistakes --------------------------------------------------------------------------------------


def failure(devices: Sequence[LogicalDevice], present: Sequence[DeviceInfo], bindings: dict[str, str],
            variants: Sequence[Variant] = (code("cuda"), code("host"))) -> str:
    with pytest.raises(DeviceError) as caught:
        bind(devices, variants, bindings, present, "model.motet")
    return str(caught.value)


def test_nothing_present_is_one_error_with_every_reason():
    devices = [logical("cpu", "host"), logical("gpu", "hip", "riscv", "cuda[2]", "vulkan")]
    assert failure(devices, [HOST, *CUDA, NO_HIP, RISCV], {}) == (
        "model.motet: device @gpu: none of its alternatives is present: hip (libamdhip64.so not found), "
        "riscv (no code in this artifact), cuda[2] (only 2 of them are present), "
        "vulkan (no vulkan device is present); present: host, cuda:0, cuda:1, riscv:qemu. "
        "Bind it with --device gpu=…, or recompile with a fallback: --device gpu=hip,riscv,cuda[2],vulkan,@cpu"
    )


def test_the_device_that_fails_is_named_not_those_that_fall_back_to_it():
    text = failure([logical("gpu", "@cpu"), logical("cpu", "hip")], [HOST, NO_HIP], {})
    assert text.startswith("model.motet: device @cpu: none of its alternatives is present: hip (libamdhip64")


def test_code_that_the_processor_cannot_run_is_a_reason():
    text = failure([logical("a", "host")], [HOST], {}, [code("host", "v9", "feature-of-2090")])
    assert "host (v9: needs feature-of-2090, which the processor lacks)" in text


def test_an_unknown_name_lists_the_devices_of_the_program():
    devices = [logical("gpu", "cuda"), logical("cpu", "host")]
    assert "device @gpv: the program has no device of that name; it has: @gpu, @cpu" in failure(
        devices, [HOST, *CUDA], {"gpv": "cuda:0"})
    assert "one without a name" in failure([], [HOST], {"gpu": "host"})


def test_a_uri_that_is_not_present_lists_what_is():
    text = failure([logical("gpu", "cuda")], [HOST, *CUDA, NO_HIP], {"gpu": "cuda:7"})
    assert text == "device cuda:7: it is not present; present: host, cuda:0 (GPU-000), cuda:1 (GPU-111)"
    for uri in ("hip", "hip:3"):
        assert failure([logical("gpu", "cuda")], [HOST, NO_HIP], {"gpu": uri}) == (
            f"device {uri}: not available: libamdhip64.so not found")


def test_binding_a_device_without_code_is_an_error():
    text = failure([logical("gpu", "cuda")], [HOST, RISCV], {"gpu": "riscv:qemu"})
    assert "device @gpu: riscv:qemu: no code in this artifact; the artifact has code for: cuda, host" in text


@pytest.mark.parametrize("devices", [
    [logical("a", "@a")],
    [logical("a", "host", "@b"), logical("b", "@c"), logical("c", "host", "@a")],
])
def test_a_circle_of_fallbacks_is_an_error(devices: list[LogicalDevice]):
    with pytest.raises(ArtifactError, match=r"in a circle: @a → "):
        bind(devices, [code("host")], {}, [HOST])


def test_a_fallback_to_nothing_is_an_error():
    with pytest.raises(ArtifactError, match="device @a: falls back to @b, which there is not"):
        bind([logical("a", "host", "@b")], [code("host")], {}, [HOST])


@pytest.mark.parametrize("uri", ["null?a", "null?=3", "null?a=1&a=2"])
def test_options_that_do_not_parse_are_errors(uri: str):
    with pytest.raises(DeviceError, match="option"):
        find_device(uri, [DeviceInfo("n", "null", family="null")])


# -- what is asked and shown -----------------------------------------------------------------------


def test_only_the_drivers_that_matter_are_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device_module, "probe", lambda family: pytest.fail(f"{family} was probed"))
    devices = [logical("gpu", "cuda", "@cpu"), logical("cpu", "cpu")]
    assert needed_families(devices, [code("cuda"), code("riscv")], {}) == ["cuda", "host"]
    assert needed_families([], [code("host")], {}) == ["host"]
    assert needed_families([], [code("host")], {"": "null/1?view=1"}) == ["host", "null"]


def test_a_choice_in_words():
    devices = [logical("gpu", "cuda", "host"), logical("b", "cuda")]
    first, second = bind(devices, [code("cuda", "sm_90"), code("host")], {}, [HOST, CUDA[0]])
    assert describe_choice(first) == ["@gpu: cuda:0 (GPU 0), code for sm_90, else host"]
    assert describe_choice(second)[1] == (
        "@b: note: it shares cuda:0 with @gpu: there is no other cuda device for it")


def test_options_of_an_alternative_are_those_of_the_device():
    device = LogicalDevice("acc", [Alternative("riscv", options="harts=2&vlen=0"), Alternative("host")])
    present = [HOST, RISCV]
    assert uris([device], present) == ["riscv:qemu?harts=2&vlen=0"]
    assert uris([device], present, {"acc": "riscv:qemu"}) == ["riscv:qemu?harts=2&vlen=0"]
    assert uris([device], present, {"acc": "riscv:qemu?harts=1"}) == ["riscv:qemu?harts=1"]
    assert uris([device], present, {"acc": "host"}) == ["host"]
