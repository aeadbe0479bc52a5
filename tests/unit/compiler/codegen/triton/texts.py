"""Functions on tensors as MLIR text."""

from __future__ import annotations

from collections.abc import Sequence

_ITERATORS = {"p": '"parallel"', "r": '"reduction"'}


def tensor(shape: Sequence[int | str], dtype: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


def nest(
    inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, str, str]], iterators: str, body: Sequence[str],
    yields: Sequence[str],
) -> str:
    """A `main` that is one `linalg.generic`. `inputs` are (type, map) named %x0, %x1, … in the body; `outputs` are
    (type, map, what they begin with or "") named %y0, …; `body` are its lines."""
    arguments = ", ".join(f"%a{i}: {kind}" for i, (kind, _) in enumerate(inputs))
    kinds = [kind for kind, _, _ in outputs]
    dims = ["i", "j", "k", "l", "m", "n", "o"][: len(iterators)]
    maps = ", ".join(f"affine_map<({', '.join(dims)}) -> ({one})>" for one in
                     [*(m for _, m in inputs), *(m for _, m, _ in outputs)])
    lines: list[str] = []
    for i, (kind, _, begin) in enumerate(outputs):
        lines.append(f"  %e{i} = tensor.empty() : {kind}")
        if begin:
            item = kind.removesuffix(">").rpartition("x")[2].removeprefix("tensor<")
            lines.append(f"  %c{i} = arith.constant {begin} : {item}")
            lines.append(f"  %f{i} = linalg.fill ins(%c{i} : {item}) outs(%e{i} : {kind}) -> {kind}")
    held = ", ".join(f"%f{i}" if begin else f"%e{i}" for i, (_, _, begin) in enumerate(outputs))
    items = [kind.removesuffix(">").rpartition("x")[2].removeprefix("tensor<") for kind in
             [*(kind for kind, _ in inputs), *kinds]]
    names = [*(f"%x{i}" for i in range(len(inputs))), *(f"%y{i}" for i in range(len(outputs)))]
    block = ", ".join(f"{name}: {item}" for name, item in zip(names, items, strict=True))
    ins = f"ins({', '.join(f'%a{i}' for i in range(len(inputs)))} : {', '.join(kind for kind, _ in inputs)}) "
    results = ", ".join(kinds)
    spread = f"%r:{len(kinds)}" if len(kinds) > 1 else "%r"
    returned = ", ".join(f"%r#{i}" for i in range(len(kinds))) if len(kinds) > 1 else "%r"
    yielded = f"linalg.yield {', '.join(yields)} : {', '.join(items[len(inputs):])}"
    return "\n".join([
        f"func.func @main({arguments}) -> ({results}) {{", *lines,
        f"  {spread} = linalg.generic {{indexing_maps = [{maps}], iterator_types = "
        f"[{', '.join(_ITERATORS[kind] for kind in iterators)}]}} {ins if inputs else ''}outs({held} : {results}) {{",
        f"  ^bb0({block}):", *(f"    {line}" for line in body), f"    {yielded}",
        f"  }} -> ({results})", f"  return {returned} : {results}", "}",
    ])


def softmax(rows: int | str, columns: int, dtype: str = "f32") -> str:
    wide, narrow = tensor((rows, columns), dtype), tensor((rows,), dtype)
    size = "%n" if rows == "?" else ""
    pairs = '{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], ' \
            'iterator_types = ["parallel", "reduction"]}'
    same = "affine_map<(i, j) -> (i, j)>"
    maps = f'{{indexing_maps = [{same}, affine_map<(i, j) -> (i)>, {same}], ' \
           'iterator_types = ["parallel", "parallel"]}'
    return f"""
func.func @main(%a: {wide}) -> {wide} {{
  %zero = arith.constant 0 : index
  %n = tensor.dim %a, %zero : {wide}
  %e = tensor.empty({size}) : {wide}
  %v = tensor.empty({size}) : {narrow}
  %low = arith.constant {"0xFF800000" if dtype == "f32" else "0xFF80" if dtype == "bf16" else "0xFC00"} : {dtype}
  %nought = arith.constant 0.0 : {dtype}
  %lows = linalg.fill ins(%low : {dtype}) outs(%v : {narrow}) -> {narrow}
  %noughts = linalg.fill ins(%nought : {dtype}) outs(%v : {narrow}) -> {narrow}
  %m = linalg.generic {pairs} ins(%a : {wide}) outs(%lows : {narrow}) {{
  ^bb0(%x: {dtype}, %y: {dtype}):
    %z = arith.maximumf %x, %y : {dtype}
    linalg.yield %z : {dtype}
  }} -> {narrow}
  %x = linalg.generic {maps} ins(%a, %m : {wide}, {narrow}) outs(%e : {wide}) {{
  ^bb0(%p: {dtype}, %q: {dtype}, %y: {dtype}):
    %z = arith.subf %p, %q : {dtype}
    %w = math.exp %z : {dtype}
    linalg.yield %w : {dtype}
  }} -> {wide}
  %s = linalg.generic {pairs} ins(%x : {wide}) outs(%noughts : {narrow}) {{
  ^bb0(%p: {dtype}, %y: {dtype}):
    %z = arith.addf %p, %y : {dtype}
    linalg.yield %z : {dtype}
  }} -> {narrow}
  %r = linalg.generic {maps} ins(%x, %s : {wide}, {narrow}) outs(%e : {wide}) {{
  ^bb0(%p: {dtype}, %q: {dtype}, %y: {dtype}):
    %z = arith.divf %p, %q : {dtype}
    linalg.yield %z : {dtype}
  }} -> {wide}
  return %r : {wide}
}}"""


def product(m: int | str, n: int, k: int, dtype: str, result: str, left: str = "i, k", right: str = "k, j") -> str:
    """result[i, j] = gelu-like(sum over k of a * b) + bias[j]: a contraction and an element-wise stage."""
    shapes = {"i": m, "j": n, "k": k}
    a, b = (tensor([shapes[d] for d in text.split(", ")], dtype) for text in (left, right))
    c, bias = tensor((m, n), result), tensor((n,), result)
    kind = "f" if result[0] in "fb" else "i"
    casts = [] if dtype == result else [
        f"%u = arith.{'extf' if kind == 'f' else 'extsi'} %p : {dtype} to {result}",
        f"%v = arith.{'extf' if kind == 'f' else 'extsi'} %q : {dtype} to {result}",
    ]
    u, v = ("%u", "%v") if casts else ("%p", "%q")
    zero = "0.0" if kind == "f" else "0"
    axis = left.split(", ").index("i")
    return f"""
func.func @main(%a: {a}, %b: {b}, %bias: {bias}) -> {c} {{
  %axis = arith.constant {axis} : index
  %rows = tensor.dim %a, %axis : {a}
  %e = tensor.empty({"%rows" if m == "?" else ""}) : {c}
  %z = arith.constant {zero} : {result}
  %f = linalg.fill ins(%z : {result}) outs(%e : {c}) -> {c}
  %s = linalg.generic {{indexing_maps = [affine_map<(i, j, k) -> ({left})>, affine_map<(i, j, k) -> ({right})>,
      affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %b : {a}, {b}) outs(%f : {c}) {{
  ^bb0(%p: {dtype}, %q: {dtype}, %y: {result}):
    {chr(10).join(casts)}
    %w = arith.mul{kind} {u}, {v} : {result}
    %x = arith.add{kind} %y, %w : {result}
    linalg.yield %x : {result}
  }} -> {c}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      ins(%s, %bias : {c}, {bias}) outs(%e : {c}) {{
  ^bb0(%p: {result}, %q: {result}, %y: {result}):
    %w = arith.add{kind} %p, %q : {result}
    %x = arith.{'maximumf' if kind == 'f' else 'maxsi'} %w, %z : {result}
    linalg.yield %x : {result}
  }} -> {c}
  return %r : {c}
}}"""


def convolution(
    image: tuple[int, int, int, int], filters: int, window: int, stride: int, padding: int, dtype: str = "f32"
) -> str:
    """Over NCHW, with zeros around the image, and an accumulator that begins with a bias."""
    n, c, h, w = image
    oh, ow = ((size + 2 * padding - window) // stride + 1 for size in (h, w))
    x, k = tensor(image, dtype), tensor((filters, c, window, window), dtype)
    p, y = tensor((n, c, h + 2 * padding, w + 2 * padding), dtype), tensor((n, filters, oh, ow), dtype)
    bias = tensor((filters,), dtype)
    return f"""
func.func @main(%x: {x}, %k: {k}, %bias: {bias}) -> {y} {{
  %z = arith.constant 0.0 : {dtype}
  %p = tensor.pad %x low[0, 0, {padding}, {padding}] high[0, 0, {padding}, {padding}] {{
  ^bb0(%i: index, %j: index, %l: index, %m: index):
    tensor.yield %z : {dtype}
  }} : {x} to {p}
  %e = tensor.empty() : {y}
  %b = linalg.broadcast ins(%bias : {bias}) outs(%e : {y}) dimensions = [0, 2, 3]
  %r = linalg.conv_2d_nchw_fchw {{strides = dense<{stride}> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}}
      ins(%p, %k : {p}, {k}) outs(%b : {y}) -> {y}
  return %r : {y}
}}"""


def depthwise(channels: int, side: int, window: int) -> str:
    x, k = tensor((1, channels, side, side), "f32"), tensor((channels, window, window), "f32")
    y = tensor((1, channels, side - window + 1, side - window + 1), "f32")
    return f"""
func.func @main(%x: {x}, %k: {k}) -> {y} {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : {y}
  %f = linalg.fill ins(%z : f32) outs(%e : {y}) -> {y}
  %r = linalg.depthwise_conv_2d_nchw_chw {{strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}}
      ins(%x, %k : {x}, {k}) outs(%f : {y}) -> {y}
  return %r : {y}
}}"""
