"""Compiles the rows of `benchmarks.gpu` for Motet and for IREE; needs no GPU."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import sys
import tarfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_iree
from benchmarks.gpu_rows import Absent, Row, say

CONTENDERS = ("Motet", "IREE")
_SUFFIXES = {"Motet": ".motet", "IREE": ".vmfb"}


def file_of(folder: Path, row: Row, contender: str) -> Path:
    """The path of a contender's program for the row."""
    return folder / f"{row.name}{_SUFFIXES[contender]}"


def compile_rows(chosen: list[Row], folder: Path, target: str, contenders: list[str], models: Path | None) -> None:
    """Compile a program for each row and contender; `compiled.json` describes each, or tells why there is none.
    Exported models are cached in `models`."""
    folder.mkdir(parents=True, exist_ok=True)
    about = folder / "compiled.json"
    for row in chosen:
        say(f"compiling {row.title}")
        model = kept(row, models)
        for contender in contenders:
            file = file_of(folder, row, contender)
            try:
                found = (_compile(row, model, file, target) if contender == "Motet"
                         else gpu_iree.compile_row(row, model, file))
            except Exception as error:  # a failing row must not affect the others
                file.unlink(missing_ok=True)
                known = "" if isinstance(error, Absent) else f"{type(error).__name__}: "
                found = {"error": f"{known}{error}"[:500]}
                say(f"  {contender}: {found['error']}")
            report: dict[str, Any] = json.loads(about.read_text()) if about.exists() else {}
            report.setdefault(row.name, {})[contender] = found
            about.write_text(json.dumps(report, indent=1))


def kept(row: Row, models: Path | None) -> bytes:
    """The row's model, from `models` if it is cached there."""
    if models is None or row.source:
        return exported(row)
    models.mkdir(parents=True, exist_ok=True)
    file = models / f"{row.name}.onnx"
    if not file.exists():
        file.write_bytes(exported(row))
    return file.read_bytes()


def _compile(row: Row, model: bytes, file: Path, target: str) -> dict[str, Any]:
    import motet

    begin = time.perf_counter()
    device = f"cuda{{arch={target}{',' + row.options if row.options else ''}}}"
    artifact = motet.compile(model, devices=device)
    seconds = time.perf_counter() - begin
    artifact.save(file)
    variant = artifact.manifest.variants[0]
    kinds = {kernel.name: kernel.kind for kernel in variant.kernels}
    commands = next(iter(variant.schedules.values())).commands
    return {"seconds": seconds, "bytes": file.stat().st_size, "commands": len(commands),
            "kinds": [kinds.get(command.kernel, command.kernel or command.op) for command in commands]}


class _Open(torch.nn.Module):
    """A module with its weights as inputs after its own inputs; it can be called once."""

    def __init__(self, module: torch.nn.Module, names: list[str], own: int) -> None:
        super().__init__()
        self.inside = [module]  # in a list, so that the exporter finds no weights
        self.names, self.own = names, own

    def forward(self, *values: torch.Tensor) -> Any:
        module = self.inside[0]
        for name, value in zip(self.names, values[self.own :], strict=True):
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            owner._parameters.pop(last, None)
            owner._buffers.pop(last, None)
            setattr(owner, last, value)
        return module(*values[: self.own])


def exported(row: Row) -> bytes:
    """The row as an ONNX model, or as the StableHLO that it provides. Traced on meta tensors where PyTorch supports it
    (not for convolutions), so that nothing is computed; the weights are inserted afterwards."""
    if row.source:
        return row.source.encode()
    import onnx

    module = row.module()
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    state = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    device = "cpu" if any(isinstance(part, torch.nn.Conv1d | torch.nn.Conv2d) for part in module.modules()) else "meta"
    own = [torch.zeros(each.shape, dtype=each.dtype, device=device) for each in row.inputs]
    weights = [tensor.to(device) for tensor in state.values()]
    names = [f"x{i}" for i in range(len(own))] + [f"w{i}" for i in range(len(weights))]
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(_Open(module, list(state), len(own)), (*own, *weights), buffer, dynamo=False,
                          opset_version=18, input_names=names)
    model = onnx.load_from_string(buffer.getvalue())
    tensors = dict(zip(names[len(own) :], state.values(), strict=True))
    own_inputs = [value for value in model.graph.input if value.name not in tensors]
    for value in model.graph.input:
        if value.name in tensors:
            tensor = tensors[value.name].detach().contiguous()
            model.graph.initializer.append(onnx.helper.make_tensor(
                value.name, value.type.tensor_type.elem_type, tensor.shape,
                tensor.view(torch.uint8).numpy().tobytes() if tensor.ndim else bytes(tensor.view(1).view(torch.uint8)),
                raw=True))
    del model.graph.input[:]
    model.graph.input.extend(own_inputs)
    return model.SerializeToString()


def pack(folder: Path, file: Path) -> None:
    """Pack a folder into one file; repeated weights compress well with a large window."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 26}]
    with lzma.open(file, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for member in sorted(folder.iterdir(), key=lambda path: path.stat().st_size):
            archive.add(member, member.name)


def unpacked(source: Path, into: Path) -> Path:
    if source.is_dir():
        return source
    with tarfile.open(source, "r:xz") as archive:
        archive.extractall(into, filter="data")
    return into
