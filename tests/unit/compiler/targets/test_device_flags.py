"""Device flags: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from motet.artifact.device_flags import (
    DeviceFlag,
    bindings_of,
    options_of,
    parse_alternative,
    parse_bindings,
    print_alternative,
)
from motet.artifact.schema import Alternative
from motet.compiler.targets.device_flags import device_flags_of, parse_device_flags, parse_device_flags_or_uris
from motet.errors import OptionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", DeviceFlag("", (Alternative("host"),))),
        ("cpu=host", DeviceFlag("cpu", (Alternative("host"),))),
        ("cuda[1]", DeviceFlag("", (Alternative("cuda", 1),))),
        ("host{cpu=x86-64-v4}", DeviceFlag("", (Alternative("host", options="cpu=x86-64-v4"),))),
        ("gpu = cuda{arch=sm_90, split=2}, @cpu",
         DeviceFlag("gpu", (Alternative("cuda", options="arch=sm_90&split=2"),
                            Alternative(fallback="cpu")))),
        ("a=x[0]{k=v},y[12]", DeviceFlag("a", (Alternative("x", 0, options="k=v"), Alternative("y", 12)))),
        ("host{}", DeviceFlag("", (Alternative("host"),))),
        ("a=[1],host", DeviceFlag("a", (Alternative("", 1), Alternative("host")))),
        ("'cpu=host'", DeviceFlag("cpu", (Alternative("host"),))),
        ('#hal.device.target<"local", {ordinal = 1 : index}>', DeviceFlag("", (Alternative("host", 1),))),
        ('g=#hal.device.select<[#hal.device.alias<"cuda"[2]>, #hal.device.fallback<@cpu> : !hal.device]>, host',
         DeviceFlag("g", (Alternative("cuda", 2), Alternative(fallback="cpu"), Alternative("host")))),
    ],
)
def test_flag_is_read(text: str, expected: DeviceFlag) -> None:
    assert parse_device_flags([text]) == (expected,)


@pytest.mark.parametrize(
    ("text", "column", "there"),
    [
        ("cuda[0]x", 8, "'x'"),
        ("cuda[z]", 6, "'z]'"),
        ("cuda[-1]", 6, "'-1]'"),
        ("cuda[]", 6, "']'"),
        ("cuda[1", 6, "'1'"),
        ("gpu=", 5, "the end"),
        ("", 1, "the end"),
        ("host,", 6, "the end"),
        ("host,,host", 6, "',host'"),
        ("host{cpu}", 9, "'}'"),
        ("host{cpu=}", 10, "'}'"),
        ("host{cpu=a", 11, "the end"),
        ("host{cpu=a,cpu=b}", 12, "'cpu=b}'"),
        ("host}", 5, "'}'"),
        ("a=b=c", 4, "'=c'"),
        ("@", 2, "the end"),
        ("host cuda", 6, "'cuda'"),
        ('#hal.device.alias<"cuda"> cuda', 27, "'cuda'"),
        ("[1", 2, "'1'"),
    ],
)
def test_bad_flag_is_named_with_its_position(text: str, column: int, there: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_device_flags([text])
    message = str(caught.value)
    assert message.startswith(f"device '{text}': column {column}: expected ")
    assert message.endswith(f"there is {there}")


@pytest.mark.parametrize(
    ("flags", "fragment"),
    [
        (["a=host", "a=cuda"], "device 'a': the name is given twice"),
        (["a=host", "cuda"], "device 'cuda': it has no name, but 'a' has one"),
        (["cuda", "a=host"], "device 'cuda': it has no name, but 'a' has one"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: list[str], fragment: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_device_flags(flags)
    assert fragment in str(caught.value)


def test_the_python_forms_mean_the_same_as_flags() -> None:
    assert device_flags_of(None) == ()
    assert device_flags_of("host,cuda[1]") == parse_device_flags(["host,cuda[1]"])
    named = device_flags_of({"gpu": "cuda,@cpu", "cpu": "host"})
    assert named == parse_device_flags(["gpu=cuda,@cpu", "cpu=host"])


_name = st.from_regex(r"[a-z_][a-z0-9_-]{0,6}", fullmatch=True)
_alternative = st.one_of(
    st.builds(Alternative, fallback=_name),
    st.builds(
        Alternative, _name, st.none() | st.integers(0, 99), options=st.dictionaries(
            _name, st.from_regex(r"[a-z0-9_+.-]{1,8}", fullmatch=True), max_size=3
        ).map(lambda options: "&".join(f"{key}={value}" for key, value in options.items())),
    ),
)


@settings(max_examples=examples(100))
@given(st.builds(DeviceFlag, st.just("") | _name, st.lists(_alternative, min_size=1, max_size=4).map(tuple)))
def test_what_is_printed_is_read_back(flag: DeviceFlag) -> None:
    assert parse_device_flags([str(flag)]) == (flag,)
    assert [parse_alternative(print_alternative(one)) for one in flag.alternatives] == list(flag.alternatives)


@given(st.text(alphabet="ab=,@[]{}01- ", max_size=16))
def test_any_text_is_a_flag_or_an_option_error(text: str) -> None:
    try:
        parse_device_flags([text])
    except OptionError as error:
        assert "column" in str(error)


def test_ordinals_may_be_written_as_in_the_names_of_the_machines_devices():
    [flag] = parse_device_flags(["gpu=cuda:1{arch=sm_90a},@cpu"])
    [bracketed] = parse_device_flags(["gpu=cuda[1]{arch=sm_90a},@cpu"])
    assert flag == bracketed and flag.alternatives[0].ordinal == 1
    for wrong in ("gpu=cuda:x", "gpu=cuda:1x", "gpu=cuda:", "gpu=cuda:1[2]", "gpu=:1"):
        with pytest.raises(OptionError):
            parse_device_flags([wrong])


def test_options_may_be_joined_as_in_uris():
    [flag] = parse_device_flags(["riscv{harts=4&memory=1G}"])
    assert (flag,) == parse_device_flags(["riscv{harts=4, memory=1G}"])
    assert options_of(flag.alternatives[0]) == {"harts": "4", "memory": "1G"}


@pytest.mark.parametrize(("text", "uri", "expression"), [
    ("gpu=cuda:0", "cuda:0", "cuda"),
    ("gpu=riscv:qemu?harts=4&memory=1G", "riscv:qemu?harts=4&memory=1G", "riscv"),
    ("gpu=null?lose-after=3", "null?lose-after=3", "null"),
    ("gpu=host/1", "host/1", "host"),
    ("gpu=cuda://GPU-1b2c", "cuda://GPU-1b2c", "cuda"),
    ("gpu=cuda", "", "cuda"),
    ("gpu=cuda[0]", "", "cuda[0]"),
    ("gpu=cuda:0,@cpu", "", "cuda[0],@cpu"),
    ("gpu=cuda:0{arch=sm_90a}", "", "cuda[0]{arch=sm_90a}"),
])
def test_what_run_gets_for_a_program_is_a_uri_or_a_flag(text: str, uri: str, expression: str):
    [flag] = parse_device_flags_or_uris([text])
    assert (flag.name, flag.uri, flag.expression) == ("gpu", uri, expression)


def test_bindings_are_physical_devices_by_name():
    assert parse_bindings(["gpu=cuda:0", " cpu = host "], ["cpu", "gpu"]) == {"gpu": "cuda:0", "cpu": "host"}
    assert parse_bindings(["GPU-1b2c-3d"], ["cpu", "gpu"]) == {"": "GPU-1b2c-3d"}
    assert parse_bindings(["'null?latency=1e-3'"], ["cpu"]) == {"": "null?latency=1e-3"}
    assert bindings_of("cuda:0") == {"": "cuda:0"} and bindings_of(None) == {}
    for flags, fragment in (
        (["gpu=cuda:0", "gpu=host"], "given twice"), (["gpu="], "expected NAME=PHYSICAL"),
        (["host", "host/1", "host/2"], r"host/2: 3 devices are given; expected at most 2, for cpu, gpu"),
        (["gpu=cuda:0", "host", "host/1"], r"host/1: several devices have no name, but 'gpu' has one"),
    ):
        with pytest.raises(OptionError, match=fragment):
            parse_bindings(flags, ["cpu", "gpu"])


def test_one_device_without_a_name_is_for_all_that_others_do_not_name():
    assert parse_bindings(["host", "gpu=cuda:0"], ["cpu", "gpu", "npu"]) == {"": "host", "gpu": "cuda:0"}
    assert [flag.name for flag in parse_device_flags_or_uris(["host/1", "gpu=cuda:0"])] == ["", "gpu"]
    for parse in (parse_device_flags_or_uris, lambda flags: parse_bindings(flags, ["cpu", "gpu"])):
        with pytest.raises(OptionError, match=r"host/1.*: several devices have no name, but 'gpu' has one"):
            parse(["host", "gpu=cuda:0", "host/1"])
    with pytest.raises(OptionError, match=r"host/1: it has no name, and other flags name all devices"):
        parse_bindings(["cpu=host", "gpu=cuda:0", "host/1"], ["cpu", "gpu"])


def test_devices_without_names_bind_in_order():
    uris = ["cuda://GPU-1b2c", "cuda://GPU-3d4e"]
    assert parse_bindings(uris, ["a", "b", "c"]) == {"a": uris[0], "b": uris[1]}


@pytest.mark.parametrize("devices", [["cuda"], {"gpu": 0}, {0: "cuda"}, {"gpu": ["cuda", "@cpu"]}, 1, b"cuda"])
def test_the_python_forms_are_texts(devices: object):
    for read in (device_flags_of, bindings_of):
        with pytest.raises(OptionError, match=r"^devices: .*expected "):
            read(devices)  # pyright: ignore[reportArgumentType]
