"""Input specifications: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.artifact.dtypes import DTYPES
from motet.errors import OptionError
from motet.specs import compare, parse_spec, random_tensor, type_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64x128xf32=1.5", np.full((64, 128), 1.5, np.float32)),
        ("4xi32=1,2,3,4", np.array([1, 2, 3, 4], np.int32)),
        ("2x2xi64=[[1, 2],[3,-4]]", np.array([[1, 2], [3, -4]], np.int64)),
        ("f32=3", np.array(3, np.float32)),
        ("2x3xf64", np.zeros((2, 3))),
        ("3xbf16=1,-2.5,inf", np.array([1, -2.5, np.inf], ml_dtypes.bfloat16)),
        ("2xf16=nan,65504", np.array([np.nan, 65504], np.float16)),
        ("3xi1=1,0,true", np.array([True, False, True])),
        ("2xui8=0xff,0", np.array([255, 0], np.uint8)),
        ("ui64=18446744073709551615", np.array(2**64 - 1, np.uint64)),
        ("2xui64=18446744073709551615,1", np.array([2**64 - 1, 1], np.uint64)),
        ("2xi64=-9223372036854775808,9223372036854775807", np.array([-(2**63), 2**63 - 1], np.int64)),
        ("0x4xf32=", np.zeros((0, 4), np.float32)),
        ("1xf32=1e-3", np.array([1e-3], np.float32)),
        ("2xindex=7,8", np.array([7, 8], np.int64)),
        ("2xf8E4M3FN=0.5,-448", np.array([0.5, -448], ml_dtypes.float8_e4m3fn)),
        ("2xf8E8M0FNU=0.5,4", np.array([0.5, 4], ml_dtypes.float8_e8m0fnu)),
        ("2xf4E2M1FN=6,-0.5", np.array([6, -0.5], ml_dtypes.float4_e2m1fn)),
        ("2xi4=-8,0x7", np.array([-8, 7], ml_dtypes.int4)),
        ("ui2=3", np.array(3, ml_dtypes.uint2)),
    ],
)
def test_spec_gives_the_tensor_it_describes(text: str, expected: np.ndarray) -> None:
    array = parse_spec(text)
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape
    np.testing.assert_array_equal(array.astype(expected.dtype), expected)


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("64y128xf32=1", 1, "neither an extent nor a dtype"),
        ("64x128xf99=1", 8, "no dtype 'f99'"),
        ("64x=1", 4, "neither an extent nor a dtype"),
        ("", 1, "expected EXTENTxEXTENTxDTYPE"),
        ("?x4xf32=1", 1, "'?' is no extent"),
        ("4xi32=1,2,3", 7, "3 elements; expected 4"),
        ("4xi32=", 7, "0 elements; expected 4"),
        ("4xi32=1,2,x,4", 11, "'x,4' is no number"),
        ("2xi32=12ab,1", 7, "'12ab,1' is no number"),
        ("2xi8=127,128", 10, "does not fit i8; expected -128 to 127"),
        ("ui8=-1", 5, "expected 0 to 255"),
        ("i32=1.5", 5, "'1.5' is no whole number"),
        ("i32=nan", 5, "is no whole number"),
        ("f32=true", 5, "truth value"),
        ("f16=1e9", 5, "does not fit f16"),
        ("f4E2M1FN=7.5", 10, "does not fit f4E2M1FN; its numbers are -6 to 6"),
        ("f4E2M1FN=nan", 10, "does not fit f4E2M1FN"),
        ("f8E8M0FNU=-1", 11, "does not fit f8E8M0FNU"),
        ("i4=8", 4, "does not fit i4; expected -8 to 7"),
        ("2xf32=[1,2", 11, "']' is missing"),
        ("2xf32=1]2", 8, "closes nothing"),
        ("4xf32=random:x", 14, "'x' is no seed"),
        ("99999999999x99999999999xf32=1", 1, "larger than any memory"),
    ],
)
def test_bad_spec_is_named_with_its_position(text: str, column: int, fragment: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_spec(text)
    message = str(caught.value)
    assert message.startswith(f"input '{text}': column {column}: ")
    assert fragment in message
    assert "\n" not in message and not message.endswith(".")


@given(st.text(alphabet="0123456789xf?32bi164=,.[]-@enarndom: ", max_size=24).filter(lambda t: "@" not in t))
def test_any_text_is_a_small_tensor_or_an_option_error(text: str) -> None:
    # Extents of more than two digits would be honest requests for much memory.
    if any(len(part) > 2 for part in text.partition("=")[0].split("x")[:-1]):
        return
    try:
        array = parse_spec(text)
    except OptionError as error:
        assert "column" in str(error)
    else:
        assert isinstance(array, np.ndarray)


@given(
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from([("f32", np.float32), ("f64", np.float64), ("i32", np.int32), ("ui16", np.uint16)]),
    st.data(),
)
def test_elements_written_out_are_read_back(
    shape: list[int], kind: tuple[str, type], data: st.DataObject
) -> None:
    name, dtype = kind
    count = math.prod(shape)
    width = 32 if name == "f32" else 64
    element = (
        st.floats(width=width) if name.startswith("f")
        else st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    )
    values = data.draw(st.lists(element, min_size=count, max_size=count))
    array = parse_spec("x".join([*map(str, shape), name]) + "=" + ",".join(map(repr, values)))
    np.testing.assert_array_equal(array, np.array(values, dtype).reshape(shape))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8E5M2", "i64", "i8", "ui8", "i1"])
def test_random_depends_on_the_seed_alone(dtype: str) -> None:
    first, again, other = (random_tensor((7, 11), dtype, seed) for seed in (3, 3, 4))
    assert type_name(first) == f"7x11x{dtype}"
    np.testing.assert_array_equal(first.astype(np.float64), again.astype(np.float64))
    assert (first != other).any()
    np.testing.assert_array_equal(
        parse_spec(f"7x11x{dtype}=random:3").astype(np.float64), first.astype(np.float64)
    )


def test_random_floats_are_standard_normal() -> None:
    values = random_tensor((100_000,), "f32", 1).astype(np.float64)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02


def test_npy_file_is_read(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(parse_spec(f"@{tmp_path}/x.npy"), array)
    np.testing.assert_array_equal(parse_spec(f"2x3xi16=@{tmp_path}/x.npy"), array)


def test_npy_file_of_a_dtype_that_numpy_lacks_is_read_with_its_type(tmp_path: Path) -> None:
    array = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(OptionError, match="name the type: 3xbf16=@"):
        parse_spec(f"@{tmp_path}/x.npy")
    read = parse_spec(f"3xbf16=@{tmp_path}/x.npy")
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read.astype(np.float32), np.array([1.5, -2, 3], np.float32))


def test_npy_file_that_is_missing_foreign_or_of_another_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("hello")
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "object.npy", np.array([{}, 1], object), allow_pickle=True)
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        parse_spec(f"@{tmp_path}/none.npy")
    for name in ("text.npy", "object.npy"):
        with pytest.raises(OptionError, match="is no array that numpy saved"):
            parse_spec(f"@{tmp_path}/{name}")
    with pytest.raises(OptionError, match="holds 2x3xf32; expected 3x2xf32"):
        parse_spec(f"3x2xf32=@{tmp_path}/x.npy")


def test_compare_accepts_rounding_and_equal_special_values() -> None:
    expected = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32)
    difference = compare(expected * np.float32(1 + 1e-6), expected)
    assert difference.first is None
    assert difference.largest < 1e-5


def test_compare_names_the_first_difference() -> None:
    expected = np.zeros((3, 4), np.float32)
    result = expected.copy()
    result[1, 2], result[2, 0] = 0.5, np.nan
    difference = compare(result, expected)
    assert difference.first == (1, 2)
    assert difference.count == 2


@pytest.mark.parametrize(
    ("result", "expected"), [(np.inf, -np.inf), (1.0, np.inf), (np.nan, 1.0), (1.0, np.nan)]
)
def test_compare_refuses_a_wrong_special_value(result: float, expected: float) -> None:
    assert compare(np.array([result], np.float32), np.array([expected], np.float32)).first == (0,)


def test_compare_is_exact_for_integers() -> None:
    large = np.array([2**62, 5], np.int64)
    assert compare(large + np.array([1, 0]), large).first == (0,)
    assert compare(large, large).first is None
    assert compare(np.array([True, False]), np.array([True, True])).first == (1,)


@pytest.mark.parametrize("dtype", ["i2", "ui2", "i4", "ui4", "f4E2M1FN", "f8E5M2FNUZ", "f8E8M0FNU"])
def test_random_elements_of_short_types_are_numbers_of_the_type(dtype: str) -> None:
    array = parse_spec(f"500x{dtype}=random:3")
    numbers = array.astype(np.float64)
    assert array.dtype == DTYPES[dtype] and np.isfinite(numbers).all() and len(np.unique(numbers)) > 1
    assert numbers.min() >= 0 or dtype.startswith("f")
