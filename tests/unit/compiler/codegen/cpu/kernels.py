"""Short ways to write kernels down for tests."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Size, Stage, Value


def value(
    shape: Sequence[Size], dtype: str = "f32", role: str = "argument", order: Sequence[int] = ()
) -> Value:
    return Value(tuple(shape), dtype, role, tuple(order) or tuple(range(len(shape))))


def at(index: int, rank: int, *entries: int | tuple, padding: float | int | None = None) -> Access:
    """Access to value `index`: each entry is a dimension, or `(constant, {dimension: coefficient})`."""
    maps = []
    for entry in entries:
        constant, terms = (0, {entry: 1}) if isinstance(entry, int) else entry
        maps.append(Affine.of(terms, constant))
    return Access(index, tuple(maps), padding)


def op(
    name: str, *operands: int, dtype: str = "f32", value: float | int | None = None, predicate: str = ""
) -> Scalar:
    return Scalar(name if "." in name else f"arith.{name}", operands, dtype, value, predicate)


def stage(
    sizes: Sequence[Size],
    iterators: str,
    inputs: Sequence[Access],
    outputs: Sequence[Access],
    body: Sequence[Scalar],
    yields: Sequence[int] = (),
    inits: Sequence = (),
) -> Stage:
    """`iterators` spells `p` and `r`; by default the last operation is yielded and nothing is initialised."""
    return Stage(
        tuple(sizes),
        tuple({"p": "parallel", "r": "reduction"}[c] for c in iterators),
        tuple(inputs),
        tuple(outputs),
        tuple(inits) or (None,) * len(outputs),
        tuple(body),
        tuple(yields) or (len(inputs) + len(outputs) + len(body) - 1,),
    )


def kernel(values: Sequence[Value], *stages: Stage, symbols: Sequence[str] = ()) -> Kernel:
    return Kernel("kernel", tuple(values), tuple(stages), tuple(symbols))


def softmax(rows: Size, columns: Size, dtype: str = "f32") -> Kernel:
    """Maximum, exponential, sum and quotient of rows."""
    symbols = [size for size in (rows, columns) if isinstance(size, str)]
    shape, pair = (rows, columns), {"sizes": (rows, columns)}
    return kernel(
        [
            value(shape, dtype),
            value(shape, dtype, "result"),
            value((rows,), dtype, "temporary"),
            value(shape, dtype, "temporary"),
            value((rows,), dtype, "temporary"),
        ],
        stage(
            **pair,
            iterators="pr",
            inputs=[at(0, 2, 0, 1)],
            outputs=[at(2, 2, 0)],
            body=[op("maximumf", 0, 1, dtype=dtype)],
            inits=[float("-inf")],
        ),
        stage(
            **pair,
            iterators="pp",
            inputs=[at(0, 2, 0, 1), at(2, 2, 0)],
            outputs=[at(3, 2, 0, 1)],
            body=[op("subf", 0, 1, dtype=dtype), op("math.exp", 3, dtype=dtype)],
        ),
        stage(
            **pair,
            iterators="pr",
            inputs=[at(3, 2, 0, 1)],
            outputs=[at(4, 2, 0)],
            body=[op("addf", 0, 1, dtype=dtype)],
            inits=[0.0],
        ),
        stage(
            **pair,
            iterators="pp",
            inputs=[at(3, 2, 0, 1), at(4, 2, 0)],
            outputs=[at(1, 2, 0, 1)],
            body=[op("divf", 0, 1, dtype=dtype)],
        ),
        symbols=symbols,
    )


def layer_norm(rows: int, columns: int, epsilon: float = 1e-5) -> Kernel:
    """As element-wise fusion leaves it: two sums, and one stage with everything else."""
    pair = {"sizes": (rows, columns)}
    return kernel(
        [
            value((rows, columns)),
            value((columns,)),
            value((columns,)),
            value((rows, columns), role="result"),
            value((rows,), role="temporary"),
            value((rows,), role="temporary"),
        ],
        stage(
            **pair,
            iterators="pr",
            inputs=[at(0, 2, 0, 1)],
            outputs=[at(4, 2, 0)],
            body=[op("addf", 0, 1)],
            inits=[0.0],
        ),
        stage(
            **pair,
            iterators="pr",
            inputs=[at(0, 2, 0, 1), at(4, 2, 0)],
            outputs=[at(5, 2, 0)],
            body=[
                op("constant", value=1.0 / columns),
                op("mulf", 1, 3),
                op("subf", 0, 4),
                op("mulf", 5, 5),
                op("addf", 6, 2),
            ],
            inits=[0.0],
        ),
        stage(
            **pair,
            iterators="pp",
            inputs=[at(0, 2, 0, 1), at(4, 2, 0), at(5, 2, 0), at(1, 2, 1), at(2, 2, 1)],
            outputs=[at(3, 2, 0, 1)],
            body=[
                op("constant", value=1.0 / columns),
                op("constant", value=epsilon),
                op("mulf", 1, 6),
                op("subf", 0, 8),
                op("mulf", 2, 6),
                op("addf", 10, 7),
                op("math.sqrt", 11),
                op("divf", 9, 12),
                op("mulf", 13, 3),
                op("addf", 14, 4),
            ],
        ),
    )
