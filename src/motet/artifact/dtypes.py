"""Element types: MLIR's spelling, numpy's dtype (`ml_dtypes` for what numpy lacks), safetensors' name."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "si8": np.dtype(np.int8), "si16": np.dtype(np.int16),
    "si32": np.dtype(np.int32), "si64": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8), "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32), "ui64": np.dtype(np.uint64),
    "u8": np.dtype(np.uint8),  # packed parameters
    "index": np.dtype(np.int64),
    "f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "complex<f32>": np.dtype(np.complex64), "complex<f64>": np.dtype(np.complex128),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn), "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz), "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f8E4M3": np.dtype(ml_dtypes.float8_e4m3), "f8E3M4": np.dtype(ml_dtypes.float8_e3m4),
    "f8E4M3B11FNUZ": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    # Types of fewer than 8 bits occupy one byte per element.
    "f6E2M3FN": np.dtype(ml_dtypes.float6_e2m3fn), "f6E3M2FN": np.dtype(ml_dtypes.float6_e3m2fn),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    "i4": np.dtype(ml_dtypes.int4), "ui4": np.dtype(ml_dtypes.uint4),
    "i2": np.dtype(ml_dtypes.int2), "ui2": np.dtype(ml_dtypes.uint2),
}  # fmt: skip

SAFETENSORS_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.int8): "I8", np.dtype(np.int16): "I16",
    np.dtype(np.int32): "I32", np.dtype(np.int64): "I64",
    np.dtype(np.uint8): "U8", np.dtype(np.uint16): "U16",
    np.dtype(np.uint32): "U32", np.dtype(np.uint64): "U64",
    np.dtype(np.float16): "F16", np.dtype(np.float32): "F32", np.dtype(np.float64): "F64",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(np.complex64): "C64", np.dtype(np.complex128): "C128",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3", np.dtype(ml_dtypes.float8_e5m2): "F8_E5M2",
    np.dtype(ml_dtypes.float8_e4m3fnuz): "F8_E4M3FNUZ", np.dtype(ml_dtypes.float8_e5m2fnuz): "F8_E5M2FNUZ",
    np.dtype(ml_dtypes.float8_e8m0fnu): "F8_E8M0",
}  # fmt: skip

SAFETENSORS_DTYPES = {name: dtype for dtype, name in SAFETENSORS_NAMES.items()}

_SPELLINGS: dict[np.dtype[Any], str] = {}
for _name, _dtype in DTYPES.items():
    if _name not in ("u8", "index") and not _name.startswith("si"):
        _SPELLINGS[_dtype] = _name


def spelling(dtype: np.dtype[Any]) -> str:
    """MLIR's spelling of a numpy dtype; numpy's own name where MLIR has none."""
    return _SPELLINGS.get(dtype, str(dtype))
