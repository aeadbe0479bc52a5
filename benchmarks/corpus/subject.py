"""Prepares the folder of each row, once: the ONNX model, the inputs and the reference.

    model.onnx       the export of the module, absent if torch cannot export it (the reason is in facts.json)
    inputs/0.npy …   arrays; bf16 as uint16
    results/0.npy …  the module's results in float64
    facts.json       operations, bytes, dtypes of the inputs
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.corpus.row import Row, Written

Array = np.ndarray[Any, Any]


def prepare(row: Row, folder: Path) -> None:
    """Create the row's folder in `folder` unless it exists."""
    place = folder / row.file
    if (place / "facts.json").exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    (place / "inputs").mkdir(parents=True)
    (place / "results").mkdir()
    facts = _write(row.write(), place) if row.write is not None else _export(row, place)
    (place / "facts.json").write_text(json.dumps(facts))


def load_facts(row: Row, folder: Path) -> dict[str, Any]:
    return json.loads((folder / row.file / "facts.json").read_text())


def load_inputs(row: Row, folder: Path) -> list[Array]:
    """The inputs in their dtypes."""
    import ml_dtypes

    arrays = _load(folder / row.file / "inputs")
    short = load_facts(row, folder)["bf16"]
    return [array.view(ml_dtypes.bfloat16) if index in short else array for index, array in enumerate(arrays)]


def load_results(row: Row, folder: Path) -> list[Array]:
    return _load(folder / row.file / "results")


def wrong(row: Row, found: Sequence[Array], expected: Sequence[Array], allowed: float) -> str | None:
    """Describes how results differ from the reference; None if they agree. One in a thousand integers may differ: ties,
    and requantisation by one step if the row allows it."""
    if len(found) < len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for array, reference in zip(found, expected, strict=False):
        if array.shape != reference.shape:
            return f"shape {array.shape}, expected {reference.shape}"
        wide = array.astype(np.float64)
        if reference.dtype.kind in "iub":
            step = 1.0 if allowed and row.dtype == "int8" else 0.0
            if (share := float(np.mean(np.abs(wide - reference) > step)) if wide.size else 0.0) > 1e-3:
                return f"{share:.1%} of the integers differ"
        elif wide.size:
            scale = max(float(np.abs(reference).max()), 1e-30)
            error = float(np.abs(wide - reference).max()) / scale
            if not error <= allowed:
                return f"off by {error:.1e}"
    return None


def _export(row: Row, place: Path) -> dict[str, Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    module, inputs = row.module()
    facts: dict[str, Any] = {"bf16": []}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index, tensor in enumerate(inputs):
            short = tensor.dtype == torch.bfloat16
            facts["bf16"] += [index] * short
            np.save(place / "inputs" / f"{index}.npy", (tensor.view(torch.uint16) if short else tensor).numpy())
        try:
            torch.onnx.export(module, tuple(inputs), str(place / "model.onnx"), dynamo=True, external_data=False,
                              verbose=False)
        except Exception as error:
            why = error.__cause__ or error  # the exporter's own message is advice
            facts["not exported"] = f"{type(why).__name__}: {(str(why).strip().splitlines() or [''])[0][:120]}"
        size = sum(tensor.nbytes for tensor in (*inputs, *module.parameters(), *module.buffers()))
        wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            results = module.double()(*wide)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    for index, tensor in enumerate(results):
        np.save(place / "results" / f"{index}.npy", tensor.numpy())
    scale = {"f64": 8, "f32": 4}.get(row.dtype, 2)
    out = sum(tensor.numel() * (scale if tensor.is_floating_point() else tensor.itemsize) for tensor in results)
    return facts | {"flops": counter.get_total_flops(), "bytes": row.moved if row.moved is not None else size + out}


def _write(written: Written, place: Path) -> dict[str, Any]:
    onnx.save(written.model, str(place / "model.onnx"))
    for kind, arrays in (("inputs", written.inputs), ("results", written.results)):
        for index, array in enumerate(arrays):
            np.save(place / kind / f"{index}.npy", array)
    arrays = [*written.inputs, *written.results]
    constants = sum(len(each.raw_data) for each in written.model.graph.initializer)
    return {"bf16": [], "flops": written.flops, "bytes": constants + sum(array.nbytes for array in arrays)}


def _load(folder: Path) -> list[Array]:
    return [np.load(folder / f"{index}.npy") for index in range(len(list(folder.iterdir())))]
