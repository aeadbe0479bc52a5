"""Element-wise work on concatenations, for GPUs: part by part, in one launch."""

from __future__ import annotations

import numpy as np
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

B, S, H = 3, 5, 7
WIDE, HALF = f"{B}x{S}x{2 * H}xf32", f"{B}x{S}x{H}xf32"
SAME = "affine_map<(b, s, j) -> (b, s, j)>"
PARALLEL = 'iterator_types = ["parallel", "parallel", "parallel"]'


def element_wise(name: str, kind: str, body: str, *operands: tuple[str, str, str]) -> str:
    """`name` of the tensor type `kind`: `body` makes %z of %i0, %i1, …, the operands, with their maps and types."""
    maps = ", ".join([*(f"affine_map<(b, s, j) -> ({map_})>" for _, map_, _ in operands), SAME])
    arguments = ", ".join([*(f"%i{number}: f32" for number in range(len(operands))), "%o: f32"])
    return f"""
  %e{name} = tensor.empty() : tensor<{kind}>
  %{name} = linalg.generic {{indexing_maps = [{maps}], {PARALLEL}}}
      ins({', '.join(each for each, _, _ in operands)} : {', '.join(f'tensor<{each}>' for _, _, each in operands)})
      outs(%e{name} : tensor<{kind}>) {{
  ^bb0({arguments}):
    {body}
    linalg.yield %z : f32
  }} -> tensor<{kind}>"""


def rotary() -> str:
    """x cos + (-right of x, left of x) sin."""
    vector = f"{S}x{2 * H}xf32"
    return f"""
func.func @main(%x: tensor<{WIDE}>, %cos: tensor<{vector}>, %sin: tensor<{vector}>) -> tensor<{WIDE}> {{
  %left = tensor.extract_slice %x[0, 0, 0] [{B}, {S}, {H}] [1, 1, 1] : tensor<{WIDE}> to tensor<{HALF}>
  %right = tensor.extract_slice %x[0, 0, {H}] [{B}, {S}, {H}] [1, 1, 1] : tensor<{WIDE}> to tensor<{HALF}>
  {element_wise("n", HALF, "%z = arith.negf %i0 : f32", ("%right", "b, s, j", HALF))}
  %c = tensor.concat dim(2) %n, %left : (tensor<{HALF}>, tensor<{HALF}>) -> tensor<{WIDE}>
  {element_wise("p", WIDE, "%z = arith.mulf %i0, %i1 : f32", ("%x", "b, s, j", WIDE), ("%cos", "s, j", vector))}
  {element_wise("q", WIDE, "%z = arith.mulf %i0, %i1 : f32", ("%c", "b, s, j", WIDE), ("%sin", "s, j", vector))}
  {element_wise("r", WIDE, "%z = arith.addf %i0, %i1 : f32", ("%p", "b, s, j", WIDE), ("%q", "b, s, j", WIDE))}
  return %r : tensor<{WIDE}>
}}"""


def test_rotary_positions_are_one_launch_without_memory_of_their_own() -> None:
    made = generate(rotary())
    assert len(made.schedule.commands) == 1 and not made.schedule.arena
    x, cos, sin = random(B, S, 2 * H), random(S, 2 * H, seed=1), random(S, 2 * H, seed=2)
    (result,) = interpret(made, [x, cos, sin])
    turned = np.concatenate([-x[..., H:], x[..., :H]], -1)
    np.testing.assert_array_equal(result, x * cos + turned * sin)


def uneven(again: str = "") -> str:
    """Three parts, put together along the first dimension: (a, exp(b), c) * y + v, y there as a whole."""
    parts = [f"{size}x{S}x{H}xf32" for size in (1, 4, 2)]
    kind, row, plane = f"7x{S}x{H}xf32", f"{H}xf32", f"7x{S}xf32"
    after = element_wise("w", kind, "%z = arith.addf %i0, %i1 : f32", ("%r", "b, s, j", kind), ("%c", "b, s, j", kind))
    return f"""
func.func @main(%a: tensor<{parts[0]}>, %b: tensor<{parts[1]}>, %d: tensor<{parts[2]}>, %y: tensor<{kind}>,
    %v: tensor<{row}>, %u: tensor<{plane}>) -> tensor<{kind}> {{
  {element_wise("x", parts[1], "%z = math.exp %i0 : f32", ("%b", "b, s, j", parts[1]))}
  %c = tensor.concat dim(0) %a, %x, %d : ({', '.join(f'tensor<{each}>' for each in parts)}) -> tensor<{kind}>
  {element_wise("q", kind, "%z = arith.mulf %i0, %i1 : f32", ("%c", "b, s, j", kind), ("%y", "b, s, j", kind))}
  {element_wise("r", kind, "%t = arith.addf %i0, %i1 : f32 %z = arith.mulf %t, %i2 : f32",
                ("%q", "b, s, j", kind), ("%v", "j", row), ("%u", "b, s", plane))}
  {after if again else ""}
  return {again or "%r"} : tensor<{kind}>
}}"""


def arguments() -> list[np.ndarray]:
    return [random(1, S, H), random(4, S, H, seed=1), random(2, S, H, seed=2), random(7, S, H, seed=3),
            random(H, seed=4), random(7, S, seed=5)]


def expected() -> tuple[np.ndarray, np.ndarray]:
    a, b, c, y, v, u = (each.astype("f8") for each in arguments())
    whole = np.concatenate([a, np.exp(b), c])
    return whole, (whole * y + v) * u[..., None]


def test_parts_of_any_lengths_read_their_share_of_what_else_there_is() -> None:
    made = generate(uneven())
    assert len(made.schedule.commands) == 1
    (result,) = interpret(made, arguments())
    np.testing.assert_allclose(result, expected()[1], 1e-5, 1e-6)


def test_what_is_also_read_as_a_whole_is_put_together_before() -> None:
    made = generate(uneven("%w"))
    assert len(made.schedule.commands) > 1
    (result,) = interpret(made, arguments())
    whole, work = expected()
    np.testing.assert_allclose(result, work + whole, 1e-5, 1e-6)


def patches() -> str:
    """Patches of an image as tokens behind one of its own, with positions, and the sums over each token."""
    conv, flat, tokens, kind = "2x16x2x2xf32", "2x16x4xf32", "2x4x16xf32", "2x5x16xf32"
    return f"""
func.func @main(%x: tensor<2x3x8x8xf32>, %w: tensor<16x3x4x4xf32>, %t: tensor<2x1x16xf32>, %p: tensor<5x16xf32>)
    -> tensor<2x5xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{conv}>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{conv}>) -> tensor<{conv}>
  %c = linalg.conv_2d_nchw_fchw {{strides = dense<4> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<16x3x4x4xf32>) outs(%f : tensor<{conv}>) -> tensor<{conv}>
  %g = tensor.collapse_shape %c [[0], [1], [2, 3]] : tensor<{conv}> into tensor<{flat}>
  %h = tensor.empty() : tensor<{tokens}>
  %u = linalg.transpose ins(%g : tensor<{flat}>) outs(%h : tensor<{tokens}>) permutation = [0, 2, 1]
  %both = tensor.concat dim(1) %t, %u : (tensor<2x1x16xf32>, tensor<{tokens}>) -> tensor<{kind}>
  {element_wise("r", kind, "%z = arith.addf %i0, %i1 : f32", ("%both", "b, s, j", kind), ("%p", "s, j", "5x16xf32"))}
  %i = tensor.empty() : tensor<2x5xf32>
  %j = linalg.fill ins(%zero : f32) outs(%i : tensor<2x5xf32>) -> tensor<2x5xf32>
  %s = linalg.reduce ins(%r : tensor<{kind}>) outs(%j : tensor<2x5xf32>) dimensions = [2]
      (%a: f32, %o: f32) {{ %y = arith.addf %a, %o : f32 linalg.yield %y : f32 }}
  return %s : tensor<2x5xf32>
}}"""


def test_what_is_put_together_lies_as_its_parts_hand_it_on() -> None:
    made = generate(patches())
    texts = [form.source for program in made.programs.values() for form in program.forms]
    assert any("dimensions lie" in text for text in texts)  # of what the convolution makes
    assert not any("result 2x5x16xf32, dimensions lie" in text for text in texts)
    x, w, t, p = random(2, 3, 8, 8), random(16, 3, 4, 4, seed=1), random(2, 1, 16, seed=2), random(5, 16, seed=3)
    (result,) = interpret(made, [x, w, t, p])
    windows = x.astype("f8").reshape(2, 3, 2, 4, 2, 4)
    tokens = np.einsum("nchiwj,kcij->nhwk", windows, w.astype("f8")).reshape(2, 4, 16)
    np.testing.assert_allclose(result, (np.concatenate([t, tokens], 1) + p).sum(-1), 1e-4, 1e-4)


def test_pieces_of_tensors_are_put_together_from_where_they_lie() -> None:
    piece, kind = f"1x{S}x{H}xf32", f"2x{S}x{H}xf32"
    made = generate(f"""
func.func @main(%x: tensor<{B}x{S}x{H}xf32>, %y: tensor<{S}x{2 * H}xf32>) -> tensor<{kind}> {{
  %a = tensor.extract_slice %x[1, 0, 0] [1, {S}, {H}] [1, 1, 1] : tensor<{B}x{S}x{H}xf32> to tensor<{piece}>
  %s = tensor.extract_slice %y[0, {H}] [{S}, {H}] [1, 1] : tensor<{S}x{2 * H}xf32> to tensor<{S}x{H}xf32>
  %b = tensor.expand_shape %s [[0, 1], [2]] output_shape [1, {S}, {H}] : tensor<{S}x{H}xf32> into tensor<{piece}>
  %c = tensor.concat dim(0) %a, %b : (tensor<{piece}>, tensor<{piece}>) -> tensor<{kind}>
  return %c : tensor<{kind}>
}}""")
    assert len(made.schedule.commands) == 1
    x, y = random(B, S, H), random(S, 2 * H, seed=1)
    (result,) = interpret(made, [x, y])
    np.testing.assert_array_equal(result, np.stack([x[1], y[:, H:]]))
