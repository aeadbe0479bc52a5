"""What reads through sliding windows are read as, from linalg text: any number of axes, strides, dilations, layouts."""

from __future__ import annotations

import pytest
from tests.unit.compiler.kernels.linalg_texts import MAXIMUM, PRODUCT, kernel_of, letters

from motet.compiler.kernels import convolution
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.windows import (
    Axis,
    Window,
    image_axes,
    is_windowed,
    read_axes,
    read_window_reduction,
    read_windows,
)

# Outputs d, h, w at taps x, y, z; images n, channels c, filters f, groups g.
SIZES = {"n": 2, "g": 29, "c": 31, "f": 37, "d": 5, "h": 7, "w": 11, "x": 4, "y": 3, "z": 6}
FORMS = [  # the expressions; the windows as output, tap, stride, dilation; groups, filters, summed channels
    ("n,c,w+z ; f,c,z -> n,f,w", ["w z 1 1"], ("", "f", "c")),
    ("n,2*w+z,c ; z,c,f -> n,w,f", ["w z 2 1"], ("", "f", "c")),
    ("n,c,w+3*z ; f,c,z -> n,f,w", ["w z 1 3"], ("", "f", "c")),
    ("n,c,h+y,w+z ; f,c,y,z -> n,f,h,w", ["h y 1 1", "w z 1 1"], ("", "f", "c")),
    ("n,2*h+y,3*w+z,c ; y,z,c,f -> n,h,w,f", ["h y 2 1", "w z 3 1"], ("", "f", "c")),
    ("n,c,h+2*y,w+5*z ; f,c,y,z -> n,f,h,w", ["h y 1 2", "w z 1 5"], ("", "f", "c")),
    ("n,g,c,h+y,w+z ; g,f,c,y,z -> n,g,f,h,w", ["h y 1 1", "w z 1 1"], ("g", "f", "c")),
    ("n,h+y,2*w+2*z,g,c ; g,y,z,c,f -> n,h,w,g,f", ["h y 1 1", "w z 2 2"], ("g", "f", "c")),
    ("n,h+y,w+z,g ; y,z,g -> n,h,w,g", ["h y 1 1", "w z 1 1"], ("g", "", "")),
    ("c,n,w+z,h+y ; z,y,c,f -> h,w,f,n", ["w z 1 1", "h y 1 1"], ("", "f", "c")),
    ("n,c,d+x,h+y,w+z ; f,c,x,y,z -> n,f,d,h,w", ["d x 1 1", "h y 1 1", "w z 1 1"], ("", "f", "c")),
    ("n,2*d+x,h+2*y,3*w+z,c ; x,y,z,c,f -> n,d,h,w,f", ["d x 2 1", "h y 1 2", "w z 3 1"], ("", "f", "c")),
    ("n,g,d+x,h+y,w+z ; g,x,y,z -> n,g,d,h,w", ["d x 1 1", "h y 1 1", "w z 1 1"], ("g", "", "")),
]


def described(stage: Stage, axis: Axis) -> str:
    """A window as it is written in `FORMS`."""
    (out,), (tap,) = axis.outs, axis.taps
    return f"{letters(stage, [out.dim], SIZES)} {letters(stage, [tap.dim], SIZES)} {out.by} {tap.by}"


def windowed(kernel: Kernel) -> tuple[Stage, list[str]]:
    (stage,) = kernel.stages
    found = read_windows(stage)
    assert found is not None
    return stage, [described(stage, axis) for axis in read_axes(kernel, stage, found.image) if axis.slides]


@pytest.mark.parametrize(("expressions", "windows", "roles"), FORMS, ids=[form for form, *_ in FORMS])
def test_convolutions_have_windows_along_any_number_of_axes(
    expressions: str, windows: list[str], roles: tuple[str, str, str]
) -> None:
    kernel = kernel_of(expressions, SIZES)
    stage, found = windowed(kernel)
    opening = read_windows(stage)
    assert found == windows and opening is not None
    groups, filters, channels = roles
    outputs, taps = ("".join(sorted(each.split()[part] for each in windows)) for part in (0, 1))
    assert letters(stage, opening.dims.batch, SIZES) == groups
    assert letters(stage, opening.dims.m, SIZES) == "".join(sorted(f"n{outputs}"))
    assert letters(stage, opening.dims.n, SIZES) == filters
    assert letters(stage, opening.dims.k, SIZES) == "".join(sorted(channels + taps))
    axes = image_axes(kernel, stage, opening.image)
    points = [walk.dim for axis in axes.points for walk in axis.outs]
    assert letters(stage, points, SIZES) == "".join(sorted(f"n{groups}"))
    assert letters(stage, [walk.dim for axis in axes.summed for walk in axis.taps], SIZES) == channels
    assert [described(stage, axis) for axis in axes.windows] == windows


@pytest.mark.parametrize("filters_first", [False, True])
def test_the_image_is_the_left_operand_whichever_comes_first(filters_first: bool) -> None:
    image, filters = "n,c,w+z", "f,c,z"
    operands = f"{filters} ; {image}" if filters_first else f"{image} ; {filters}"
    kernel = kernel_of(f"{operands} -> n,f,w", SIZES)
    opening = read_windows(kernel.stages[0])
    assert opening is not None and opening.dims.product.lhs.input == int(filters_first)
    assert is_windowed(opening.image) and not is_windowed(opening.filters)


def test_padding_is_where_windows_begin() -> None:
    kernel = kernel_of("n,c,2*h+y,w+3*z ; f,c,y,z -> n,f,h,w", SIZES, {2: (1, 2), 3: (4, 0)})
    opening = read_windows(kernel.stages[0])
    assert opening is not None and opening.image.padding == 0
    rows, columns = (axis.window for axis in image_axes(kernel, opening.stage, opening.image).windows)
    assert rows is not None and columns is not None
    height, width = 2 * 6 + 2 + 1 - 3, 10 + 15 + 1 - 4
    assert (rows.size, rows.taps, rows.stride, rows.dilation, rows.low, rows.image) == (7, 3, 2, 1, 1, height)
    assert (columns.size, columns.taps, columns.stride, columns.dilation, columns.low, columns.image) == (
        11, 6, 1, 3, 4, width)
    assert (rows.step, columns.step) == (width, 1) and rows.is_forward and columns.is_forward
    assert rows.reach == height + 3 and columns.span(1) == 16


def test_channels_that_are_padded_are_a_window() -> None:
    """Whose taps are all channels, the padding's too."""
    kernel = kernel_of("n,c,w+z ; f,c,z -> n,f,w", SIZES, {1: (1, 0)})
    opening = read_windows(kernel.stages[0])
    assert opening is not None
    axes = image_axes(kernel, opening.stage, opening.image)
    assert not axes.summed and [axis.number for axis in axes.windows] == [1, 2]
    assert axes.windows[0].low == 1 and not axes.windows[0].outs


POOLS = [
    ("n,g,w+z ; z -> n,g,w", ["w z 1 1"]),
    ("n,g,2*h+y,2*w+z ; y,z -> n,g,h,w", ["h y 2 1", "w z 2 1"]),
    ("n,3*h+y,w+2*z,g ; y,z -> n,h,w,g", ["h y 3 1", "w z 1 2"]),
    ("n,2*d+x,h+y,3*w+z,g ; x,y,z -> n,d,h,w,g", ["d x 2 1", "h y 1 1", "w z 3 1"]),
]


@pytest.mark.parametrize(("expressions", "windows"), POOLS, ids=[form for form, _ in POOLS])
@pytest.mark.parametrize(("body", "op"), [(MAXIMUM, "arith.maximumf"), (PRODUCT, "arith.addf")])
def test_poolings_and_single_channels_are_reductions_of_windows(
    expressions: str, windows: list[str], body: tuple[str, str], op: str
) -> None:
    kernel = kernel_of(expressions, SIZES, body=body)
    (stage,) = kernel.stages
    found = read_window_reduction(kernel, stage)
    assert found is not None and found.combiner.op == op
    assert [described(stage, axis) for axis in found.windows] == windows
    assert letters(stage, [found.column, found.along], SIZES) == "wz"
    assert (found.row is None) == (len(windows) == 1)


@pytest.mark.parametrize("expressions", [
    "n,c,w+z ; f,c,z -> n,f,w",  # sums channels as well
    "n,w+z ; z,w -> n",  # reduces the outputs
    "n,g,w+z+y ; z,y -> n,g,w",  # two dimensions of one window
    "n,c ; c,f -> n,f",
])
def test_other_reductions_are_none_of_windows(expressions: str) -> None:
    kernel = kernel_of(expressions, SIZES)
    assert read_window_reduction(kernel, kernel.stages[0]) is None


@pytest.mark.parametrize(("expressions", "rows", "columns"), [
    ("n,c,w+z ; f,c,z -> n,f,w", (-1, 1, 1, 1), (11, 6, 1, 1)),
    ("n,2*h+y,w+2*z,c ; y,z,c,f -> n,h,w,f", (7, 3, 2, 1), (11, 6, 1, 2)),
])
def test_convolutions_of_rows_and_columns_are_numbers(
    expressions: str, rows: tuple[int, ...], columns: tuple[int, ...]
) -> None:
    found = convolution.match(kernel_of(expressions, SIZES))
    assert found is not None and (found.channels, found.filter_count) == (31, 37)

    def numbers(window: Window) -> tuple[int, ...]:
        return window.size if window.kernel >= 0 else -1, window.taps, window.stride, window.dilation

    assert (numbers(found.rows), numbers(found.columns)) == (rows, columns)


@pytest.mark.parametrize(("stride", "dilation", "low", "forward"), [
    (1, 1, 0, True), (2, 3, 1, True), (1, -1, -2, False), (-1, 1, 0, False), (1, 1, -1, False),
])
def test_windows_are_forward_unless_a_step_is_backwards_or_they_begin_inside(
    stride: int, dilation: int, low: int, forward: bool
) -> None:
    assert Window(0, 1, 5, 3, stride, dilation, low, 7, 1).is_forward == forward
