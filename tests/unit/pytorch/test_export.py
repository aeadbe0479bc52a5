"""Modules of PyTorch, compiled and compared with what PyTorch itself calculates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motet
from motet.errors import CompileError, OptionError

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
F = torch.nn.functional


class Function(torch.nn.Module):
    """A module of a plain function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class OfOne(Function):
    def forward(self, x: Any) -> Any:
        return self.function(x)


def check(module: Any, inputs: Sequence[Any], calls: Sequence[Sequence[Any]] = (), dynamic: Any = None) -> Any:
    """Compiles for `inputs`, and compares results for them and for `calls`. Returns the session."""
    module.eval()
    session = motet.load(motet.compile(module, inputs=inputs, dynamic_shapes=dynamic))
    for arguments in (inputs, *calls):
        with torch.no_grad():
            expected = module(*arguments)
        found = session(*arguments)
        pairs = [(found, expected)] if isinstance(expected, torch.Tensor) else list(zip(found, expected, strict=True))
        for mine, theirs in pairs:
            assert isinstance(mine, torch.Tensor)
            torch.testing.assert_close(mine, theirs)
    return session


def test_convolutions_and_normalisations() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, stride=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(8 * 3 * 3, 5), torch.nn.LogSoftmax(-1),
    )
    model[1].running_mean.uniform_()
    model[1].running_var.uniform_(0.5, 2)
    check(model, [torch.randn(2, 3, 13, 13)])


def test_a_transformer_layer() -> None:
    torch.manual_seed(2)
    check(torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), [torch.randn(2, 7, 16)])


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float", "whole rows"])
def test_attention_with_every_kind_of_mask(mask: str) -> None:
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 3, n, 8) for n in (5, 7, 7))
    given: Any = None
    if mask in ("bool", "whole rows"):
        given = torch.rand(5, 7) > 0.4
        given[:, 0] = True
        if mask == "whole rows":
            given[2] = False
    elif mask == "float":
        given = torch.randn(2, 1, 5, 7)
    causal = mask == "causal"
    inputs = [q, k, v] if given is None else [q, k, v, given]
    check(Function(lambda q, k, v, m=None: F.scaled_dot_product_attention(q, k, v, m, is_causal=causal)), inputs)


def test_grouped_heads_share_keys_and_values() -> None:
    torch.manual_seed(4)
    inputs = [torch.randn(1, heads, 5, 8) for heads in (6, 2, 2)]
    check(Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)), inputs)


def test_extents_that_differ_from_call_to_call() -> None:
    torch.manual_seed(5)
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", max=99)
    model = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    calls = [[torch.randn(*shape, 16)] for shape in ((1, 1), (5, 13), (2, 31))]
    session = check(model, [torch.randn(3, 7, 16)], calls, ({0: batch, 1: length},))
    assert session.signature.inputs[0].shape[2] == 16
    assert [type(extent) for extent in session.signature.inputs[0].shape[:2]] == [str, str]


def test_slices_of_dynamic_extents() -> None:
    """Slices, paddings and concatenations, whose extents follow from the inputs'."""
    rows = torch.export.Dim("rows", min=4, max=99)

    def cut(x: Any) -> Any:
        return torch.cat([F.pad(x[1:, 2:], (1, 0, 0, 1)), x[:, :3].relu()], 1)

    check(OfOne(cut), [torch.randn(5, 7)], [[torch.randn(4, 7)], [torch.randn(17, 7)]], ({0: rows},))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "bool"])
def test_element_types(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = (torch.randn(3, 5) * 3).to(kind)
    y = (torch.randn(3, 5) * 3).to(kind)
    check(Function((lambda x, y: x ^ y) if dtype == "bool" else (lambda x, y: x * y + x)), [x, y])


def test_large_and_small_constants() -> None:
    """Buffers of integers stay constants of the program; large ones of floating point become parameters."""
    torch.manual_seed(6)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("positions", torch.arange(40))
            self.register_buffer("large", torch.randn(40, 64).to(torch.bfloat16))
            self.table = torch.nn.Embedding(40, 64)

        def forward(self, ids: Any) -> Any:
            return self.table(ids) + self.large[self.positions[: ids.shape[0]]].float()

    check(Model(), [torch.tensor([3, 0, 39, 7])])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_exact(approximate: str) -> None:
    x = torch.linspace(-9, 9, 4001)
    found = motet.load(motet.compile(Function(lambda x: F.gelu(x, approximate=approximate)), inputs=[x]))(x)
    expected = F.gelu(x.double(), approximate=approximate)
    assert (found - expected).abs().max() < 1e-6


def test_infinities_and_quotients_by_zero() -> None:
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 2.0])
    session = motet.load(motet.compile(Function(lambda x: (x.reciprocal(), x.rsqrt())), inputs=[x]))
    np.testing.assert_array_equal(session(x)[0].numpy(), x.reciprocal().numpy())
    np.testing.assert_array_equal(session(x)[1].numpy(), x.rsqrt().numpy())


def test_results_that_are_inputs_or_constants() -> None:
    check(Function(lambda x: (x, x + 1, torch.ones(3))), [torch.randn(4)])


def test_inputs_by_name() -> None:
    class Model(torch.nn.Module):
        def forward(self, left: Any, right: Any) -> Any:
            return left - right

    x, y = torch.randn(3), torch.randn(3)
    session = motet.load(motet.compile(Model(), inputs={"left": x, "right": y}))
    assert [spec.name for spec in session.signature.inputs] == ["left", "right"]
    torch.testing.assert_close(session(x, y), x - y)


def test_files_of_torch_export(tmp_path: Path) -> None:
    model = torch.nn.Linear(40, 50).eval()
    x = torch.randn(3, 40)
    exported = torch.export.export(model, (x,))
    torch.export.save(exported, tmp_path / "model.pt2")
    with torch.no_grad():
        for source in (exported, tmp_path / "model.pt2", str(tmp_path / "model.pt2")):
            torch.testing.assert_close(motet.load(motet.compile(source))(x), model(x))


def test_the_same_model_gives_the_same_artifact() -> None:
    model, x = torch.nn.Linear(40, 50).eval(), torch.randn(3, 40)
    first, second = (motet.compile(model, inputs=[x], cache=False).data for _ in range(2))
    assert bytes(first) == bytes(second)


# -- mistakes --------------------------------------------------------------------------------------


def test_an_operator_without_lowering_is_named_at_its_line() -> None:
    with pytest.raises(CompileError, match=r"test_export\.py:\d+.*aten\._linalg_svd.*no lowering") as caught:
        motet.compile(Function(lambda x: torch.linalg.svd(x)[1]), inputs=[torch.randn(3, 3)])
    assert "\n" not in str(caught.value)


def test_a_module_that_changes_its_buffers() -> None:
    with pytest.raises(CompileError, match=r"changes its buffer running_mean.*call eval\(\)"):
        motet.compile(torch.nn.BatchNorm1d(3).train(), inputs=[torch.randn(4, 3)])


def test_a_module_that_changes_its_input() -> None:
    with pytest.raises(CompileError, match="changes its input"):
        motet.compile(Function(lambda x: x.add_(1)), inputs=[torch.randn(4)])


def test_control_flow_on_data() -> None:
    with pytest.raises(CompileError, match=r"torch\.export cannot trace"):
        motet.compile(Function(lambda x: x if x.sum() > 0 else -x), inputs=[torch.randn(4)])


def test_a_module_without_inputs() -> None:
    with pytest.raises(OptionError, match=r"a module \(Linear\) without inputs"):
        motet.compile(torch.nn.Linear(2, 2))
    for wrong in (5, 1.5, "x", object(), torch.randn(4, 2)):
        with pytest.raises(OptionError, match=r"inputs: .* given, of type \w+; expected a tuple of tensors"):
            motet.compile(torch.nn.Linear(2, 2), inputs=wrong)  # type: ignore[arg-type]


def test_inputs_for_what_is_no_module() -> None:
    with pytest.raises(OptionError, match=r"only a torch\.nn\.Module"):
        motet.compile("func.func @main()\n", inputs=[torch.randn(2)])


def test_an_archive_that_is_no_program(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3))
    with pytest.raises(CompileError, match=r"arrays\.npz: a zip archive that is no program"):
        motet.compile(tmp_path / "arrays.npz")


def test_inputs_that_are_views() -> None:
    """Their extents are theirs, whatever tensor they are a part of."""
    torch.manual_seed(12)
    weight = torch.randn(3, 5).reshape(15)[2:8]
    inputs = [torch.randn(4, 5).T[1:4].T, torch.randn(2, 6, 5, 3), weight, torch.randn(12)[::2]]
    check(Function(lambda a, x, w, b: (a.softmax(0), F.group_norm(x, 3, w, b))), inputs)


@pytest.mark.parametrize("function", [
    lambda x: x[x > 0], lambda x: x.nonzero(), lambda x: torch.unique(x), lambda x: torch.masked_select(x, x > 0).sum(),
], ids=["index", "nonzero", "unique", "masked_select"])
def test_extents_that_depend_on_numbers_are_refused(function: Any) -> None:
    with pytest.raises(CompileError, match=r"test_export\.py:\d+: aten\.\S+: the extents of its result depend"):
        motet.compile(Function(function), inputs=[torch.randn(4, 6)])


@pytest.mark.parametrize("function", [
    lambda x: x + torch.rand_like(x), lambda x: torch.bernoulli(x.sigmoid()), lambda x: F.dropout(x, 0.5, True),
])  # fmt: skip
def test_random_numbers_are_refused(function: Any) -> None:
    with pytest.raises(CompileError, match=r"test_export\.py:\d+: aten\.\S+: its results are random"):
        motet.compile(Function(function), inputs=[torch.randn(4, 6)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_first_nan_is_the_largest_and_the_smallest(dtype: Any) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1, nan, 2, nan], [inf, 1, 2, inf], [-inf] * 4, [0, 3, -1, 3], [nan] * 4]).to(dtype)
    session = motet.load(motet.compile(Function(lambda x: (
        x.argmax(1), x.argmin(0, True), x.argmax(), *x.max(1), *x.min(0, True), x.argmin(None, True),
    )), inputs=[x]))
    expected = [x.argmax(1), x.argmin(0, True), x.argmax(), *x.max(1), *x.min(0, True), x.argmin(None, True)]
    for mine, theirs in zip(session(x), expected, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("shapes", [((3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((2, 3, 5), (5, 7)), ((3, 5), (5,))])
def test_products_of_bytes_wrap(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in shapes)
    check(Function(torch.matmul), [a, b])


def test_what_was_traced_on_a_gpu_is_compiled(monkeypatch):
    """Tensors that the program makes carry the device's name."""
    from motet.pytorch import export

    write, seen = export.write_serialized, []

    def as_on_a_gpu(text, parameters, interface):
        seen.append(text.count('constant.device "cpu"'))
        return write(text.replace('constant.device "cpu"', 'constant.device "cuda:0"'), parameters, interface)

    class Causal(torch.nn.Module):
        def forward(self, q, k, v):
            scores = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return scores + torch.arange(8, device=q.device) + torch.full((8,), 0.5, device=q.device)

    monkeypatch.setattr(export, "write_serialized", as_on_a_gpu)
    torch.manual_seed(5)
    inputs = [torch.randn(2, 3, 7, 8) for _ in range(3)]
    session = motet.load(motet.compile(Causal(), inputs=inputs, devices="host"))
    assert seen and seen[0]
    torch.testing.assert_close(session(*inputs), Causal()(*inputs), rtol=1e-5, atol=1e-5)


def test_a_view_of_dynamic_extents_is_the_result() -> None:
    torch.manual_seed(60)
    batch = ({0: torch.export.Dim("batch", max=64)},)
    x, other = torch.randn(3, 5, 6), torch.randn(7, 5, 6)
    check(torch.nn.Linear(6, 4), [x], [[other]], batch)  # of three dimensions: torch makes one of the first two
    check(OfOne(lambda x: (x.view(-1, 6), (x + 1).reshape(x.shape[0], 10, 3), x)), [x], [[other]], batch)
    check(OfOne(lambda x: x.view(x.shape[0], 5, 6)), [x], [[other]], batch)


class Strided(torch.nn.Module):
    """A pad by a number in a buffer, as causal convolutions of sound have."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.register_buffer("stride", torch.tensor(4))
        self.register_buffer("calls", torch.tensor([0]))
        self.register_buffer("weights", torch.ones(3))
        self.counts = counts

    def forward(self, x: Any) -> Any:
        if self.counts:
            self.calls.add_(1)
        frames = torch.ceil(x.shape[-1] / self.stride).to(torch.int64)
        padded = torch.nn.functional.pad(x, (0, int(frames * self.stride - x.shape[-1])))
        return padded.unflatten(-1, (-1, int(self.stride))).sum(-1) + self.calls


def test_numbers_in_buffers_are_known() -> None:
    module, x = Strided(counts=False), torch.arange(10.0)
    found = motet.load(motet.compile(module, inputs=[x], cache=False))(x)
    assert found.tolist() == module(x).tolist() == [6, 22, 17]
    assert type(module) is Strided
    assert list(module.state_dict()) == ["stride", "calls", "weights"]
    with pytest.raises(motet.CompileError, match="the module changes its buffer calls"):
        motet.compile(Strided(counts=True), inputs=[x], cache=False)


def test_what_is_random_in_training_alone_is_calculated_outside_of_it() -> None:
    x = torch.linspace(-3, 3, 11)
    with motet.load(motet.compile(Function(torch.nn.functional.rrelu), inputs=[x])) as session:
        torch.testing.assert_close(torch.as_tensor(session(x)), torch.nn.functional.rrelu(x))


def test_a_tensor_given_twice_is_two_inputs() -> None:
    x = torch.ones(2, 3)
    session = motet.load(motet.compile(Function(lambda a, b: a - 2 * b), inputs=[x, x]))
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(session(a, b), a - 2 * b)


class Skip(torch.nn.Module):
    """Operators in its own code, next to a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return torch.sin(torch.relu(self.dense(x)) + x)


class Scale(torch.nn.Module):
    """An operator in the code of a module without submodules."""

    def forward(self, x: Any) -> Any:
        return torch.cumsum(x, 1)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.scale = torch.nn.Sequential(Skip(), Scale()), Scale()

    def forward(self, x: Any) -> Any:
        return torch.cumsum(self.scale(self.blocks(x)), 0)


def test_operators_in_the_code_of_a_module_are_named_by_its_path_and_the_operator() -> None:
    artifact = motet.compile(Scaled().eval(), inputs=(torch.ones(4, 6),))
    (schedule,) = artifact.manifest.variants[0].schedules.values()
    named = [command.source for command in schedule.commands if command.source]
    assert named[0] == "blocks.0.dense + blocks.0.relu + blocks.0.add + blocks.0.sin"
    assert named[1:3] == ["blocks.1.cumsum", "scale"]  # the class says what the second is for
    assert named[3].startswith("cumsum")
    placed = motet.compile(Scaled().eval(), inputs=(torch.ones(4, 6),), devices={"a": "host", "b": "host"},
                           place={"blocks.0": "b", "blocks.1.cumsum": "b"})  # a module's path, and a name
    assert len(placed.manifest.regions) > 1
