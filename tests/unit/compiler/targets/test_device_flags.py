"""Device flags: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.compiler.targets.device_flags import (
    DeviceFlag,
    FlagAlternative,
    device_flags_of,
    parse_device_flag,
    parse_device_flags,
)
from motet.errors import OptionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", DeviceFlag("", (FlagAlternative("host"),))),
        ("cpu=host", DeviceFlag("cpu", (FlagAlternative("host"),))),
        ("cuda[1]", DeviceFlag("", (FlagAlternative("cuda", 1),))),
        ("host{cpu=x86-64-v4}", DeviceFlag("", (FlagAlternative("host", None, (("cpu", "x86-64-v4"),)),))),
        ("gpu = cuda{arch=sm_90, split=2}, @cpu",
         DeviceFlag("gpu", (FlagAlternative("cuda", None, (("arch", "sm_90"), ("split", "2"))),
                            FlagAlternative("cpu", fallback=True)))),
        ("a=x[0]{k=v},y[12]", DeviceFlag("a", (FlagAlternative("x", 0, (("k", "v"),)), FlagAlternative("y", 12)))),
        ("host{}", DeviceFlag("", (FlagAlternative("host"),))),
        ("a=[1],host", DeviceFlag("a", (FlagAlternative("", 1), FlagAlternative("host")))),
        ("'cpu=host'", DeviceFlag("cpu", (FlagAlternative("host"),))),
        ('#hal.device.target<"local", {ordinal = 1 : index}>', DeviceFlag("", (FlagAlternative("host", 1),))),
        ('g=#hal.device.select<[#hal.device.alias<"cuda"[2]>, #hal.device.fallback<@cpu> : !hal.device]>, host',
         DeviceFlag("g", (FlagAlternative("cuda", 2), FlagAlternative("cpu", fallback=True), FlagAlternative("host")))),
    ],
)
def test_flag_is_read(text: str, expected: DeviceFlag) -> None:
    assert parse_device_flag(text) == expected


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
        parse_device_flag(text)
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
    st.builds(FlagAlternative, _name, fallback=st.just(True)),
    st.builds(
        FlagAlternative, _name, st.none() | st.integers(0, 99),
        st.dictionaries(_name, st.from_regex(r"[a-z0-9_+.-]{1,8}", fullmatch=True), max_size=3).map(
            lambda options: tuple(options.items())
        ),
    ),
)


@given(st.builds(DeviceFlag, st.just("") | _name, st.lists(_alternative, min_size=1, max_size=4).map(tuple)))
def test_what_is_printed_is_read_back(flag: DeviceFlag) -> None:
    text = f"{flag.name}={flag.expression}" if flag.name else flag.expression
    assert parse_device_flag(text) == flag


@given(st.text(alphabet="ab=,@[]{}01- ", max_size=16))
def test_any_text_is_a_flag_or_an_option_error(text: str) -> None:
    try:
        parse_device_flag(text)
    except OptionError as error:
        assert "column" in str(error)


def test_ordinals_may_be_written_as_in_the_names_of_the_machines_devices():
    [flag] = parse_device_flags(["gpu=cuda:1{arch=sm_90a},@cpu"])
    [bracketed] = parse_device_flags(["gpu=cuda[1]{arch=sm_90a},@cpu"])
    assert flag == bracketed and flag.alternatives[0].ordinal == 1
    for wrong in ("gpu=cuda:x", "gpu=cuda:1x", "gpu=cuda:", "gpu=cuda:1[2]", "gpu=:1"):
        with pytest.raises(OptionError):
            parse_device_flags([wrong])
