"""Element types as the fuzzer names them, with numpy's type and what is known of their numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ("f32", "f16", "bf16", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, "bool")

# Half the distance from 1 to the next number: the relative error of one rounding. The reference is calculated in f64,
# whose own errors count for f64 as much again.
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "f64": 2.0**-52}
LARGEST = {name: float(ml_dtypes.finfo(DTYPES[name]).max) for name in FLOATS}
TINY = {name: float(ml_dtypes.finfo(DTYPES[name]).smallest_subnormal) for name in FLOATS}
# What a function may lose near zero: numbers below f32's smallest normal one, in which narrow types are calculated too.
LOST = {"f32": 2.0**-126, "f16": 2.0**-126, "bf16": 2.0**-126, "f64": 2.0**-1022}
MANTISSA = {"f32": 24, "f16": 11, "bf16": 8, "f64": 53}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS
