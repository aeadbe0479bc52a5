"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Runnable = Annotated[str, typer.Argument(
    metavar="FILE", show_default=False,
    help="An artifact (.motet), or a program to compile first: MLIR text, ONNX, StableHLO, OpenVINO's IR; - for "
    "standard input.",
)]
Program = Annotated[str, typer.Argument(
    metavar="INPUT", show_default=False,
    help="A program: MLIR text, an ONNX model, StableHLO, OpenVINO's IR; - for standard input.",
)]
Format = Annotated[str, typer.Option(
    metavar="FORMAT", help="The program's format: auto, mlir, onnx, openvino or stablehlo.",
)]
Devices = Annotated[list[str] | None, typer.Option(
    "--device", "--iree-hal-target-device", "--iree-hal-target-backends", metavar="[NAME=]ALT[,ALT...]",
    show_default=False,
    help="A device and its alternatives, the preferred one first: host, host{cpu=x86-64-v4}, cuda[1], "
    "@other. May be given several times.",
)]
Bindings = Annotated[list[str] | None, typer.Option(
    "--device", "--iree-hal-target-device", metavar="[NAME=]DEVICE", show_default=False,
    help="The physical device to bind NAME to, such as host or riscv:qemu. For a program also the target to compile "
    "for, as with compile. May be given several times: without names, they bind to the program's devices in the order "
    "of their declaration, the default device first; one alone, or one next to named ones, is for all that none names.",
)]
Placement = Annotated[str, typer.Option(
    metavar="default|auto", help="Where operations run that the program does not place: on its default device, or "
    "on the devices that a cost model chooses.",
)]
Mesh = Annotated[str, typer.Option(
    metavar="AXIS=DEVICES,…", show_default=False,
    help="Divide the program over a mesh of devices, such as data=2,model=4; the devices are d0, d1, ….",
)]
Shards = Annotated[list[str] | None, typer.Option(
    "--shard", metavar="NAMES=AXIS:DIMENSION,…", show_default=False,
    help="Divide a dimension of the arguments, and of the results of operations, whose name matches NAMES over an axis "
    "of the mesh, such as 'layers.*.q=model:1'. May be given several times.",
)]
Places = Annotated[list[str] | None, typer.Option(
    "--place", metavar="NAMES=NAME", show_default=False,
    help="Run the operations whose name in the source matches NAMES (with * and ? as in file names), such as an ONNX "
    "model's nodes, on device NAME. May be given several times; the first match is used.",
)]
Function = Annotated[str | None, typer.Option(
    metavar="F", help="The function to call; required if there are several and none is named main.",
    show_default=False,
)]
Inputs = Annotated[list[str] | None, typer.Option(
    "--input", metavar="SPEC", show_default=False,
    help="One for each input, in order: 64x128xf32=1.5, 4xi32=1,2,3,4, 64x128xf32=random:SEED, f32=3 or "
    "@file.npy.",
)]
Threads = Annotated[int | None, typer.Option(
    metavar="N", min=1, help="The number of threads; by default all processors.", show_default=False,
)]
Verify = Annotated[bool, typer.Option(
    "--verify", help="Compare the results with an oracle's (--oracle). An artifact must contain its source for that: "
    "compile it with --option keep-source=true.",
)]
Oracle = Annotated[str, typer.Option(
    metavar="upstream|numpy|onnxruntime|openvino", help="The oracle of --verify: upstream MLIR's plain lowering of the "
    "program; for an ONNX model, onnx's reference evaluator in numpy, or ONNX Runtime; for IR, OpenVINO in f32.",
)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs to read.")]
