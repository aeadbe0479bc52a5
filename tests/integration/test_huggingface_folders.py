"""motet.huggingface.from_pretrained: tiny random models beside transformers and numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from motet.errors import CallError, MotetError, OptionError
from motet.huggingface import from_pretrained


def write_onnx(path: Path) -> np.ndarray:
    weights = np.random.default_rng(3).standard_normal((7, 5)).astype("f4")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["features", "w"], ["logits"]), helper.make_node("Exp", ["logits"], ["odds"])], "g",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 7])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5]) for name in ("logits", "odds")],
        [numpy_helper.from_array(weights, "w")],
    )
    path.parent.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return weights


@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx", "other.onnx"])
def test_the_onnx_file_of_a_folder(tmp_path: Path, file: str) -> None:
    weights = write_onnx(tmp_path / file)
    model = from_pretrained(tmp_path)
    assert (model.input_names, model.output_names) == (["features"], ["logits", "odds"])
    x = np.random.default_rng(1).standard_normal((3, 7)).astype("f4")
    result = model(features=x)
    np.testing.assert_allclose(result["logits"], x @ weights, 1e-5, 1e-5)
    np.testing.assert_allclose(result["odds"], np.exp(x @ weights), 1e-4, 1e-5)
    with pytest.raises(CallError, match="no input 'pixels'; there are: features"):
        model(pixels=x)
    with pytest.raises(CallError, match="inputs not given: features"):
        model()


@pytest.mark.parametrize(("files", "options", "said"), [
    ({}, {}, "it has neither an ONNX file nor config.json"),
    ({"a.onnx": "", "b.onnx": ""}, {}, "it has several ONNX files; choose one by file=: a.onnx, b.onnx"),
    ({"a.onnx": ""}, {"file": "c.onnx"}, "c.onnx: there is no such file; expected one of a.onnx"),
    ({"a.onnx": ""}, {"inputs": {}}, "of no use for an ONNX model"),
    ({"config.json": "{"}, {}, "config.json: not JSON"),
    ({"config.json": "[]"}, {}, "architectures: None given"),
    ({"config.json": json.dumps({"architectures": ["BertModel"]})}, {}, r"nor weights \*.safetensors"),
    ({"config.json": json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})}, {},
     r"LlamaForCausalLM generates text; motet.llm.load\('"),
    ({"config.json": json.dumps({"architectures": ["BloomForCausalLM"], "model_type": "bloom"})}, {},
     "BloomForCausalLM generates text; motet.llm.load is for the families gemma, "),
])  # fmt: skip
def test_folders_without_a_model(tmp_path: Path, files: dict[str, str], options: Any, said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(OptionError, match=said) as error:
        from_pretrained(tmp_path, **options)
    assert "\n" not in str(error.value)


def test_names_of_the_hub_are_not_downloaded() -> None:
    with pytest.raises(OptionError, match="folder: 5 given, of type int; expected the path of a folder"):
        from_pretrained(5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="not a local folder; nothing is downloaded: hf download"):
        from_pretrained("google-bert/bert-base-uncased")


@pytest.fixture
def frameworks() -> tuple[Any, Any]:
    """PyTorch and transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    try:
        _ = transformers.BertModel
    except (ImportError, RuntimeError) as error:  # such as a torchvision for another build of torch
        pytest.skip(f"transformers cannot import its models: {error}")
    return torch, transformers


def bert(transformers: Any, kind: str) -> Any:
    config = transformers.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=24, max_position_embeddings=40, num_labels=3)  # fmt: skip
    return getattr(transformers, kind)(config)


def text_inputs(torch: Any, batch: int, length: int) -> dict[str, Any]:
    torch.manual_seed(batch)
    mask = torch.ones((batch, length), dtype=torch.int64)
    mask[0, length // 2 + 1:] = 0
    return {"input_ids": torch.randint(0, 50, (batch, length)), "attention_mask": mask,
            "token_type_ids": torch.randint(0, 2, (batch, length))}  # fmt: skip


def compare(model: Any, reference: Any, inputs: dict[str, Any], torch: Any) -> None:
    with torch.no_grad():
        expected = reference.eval()(**inputs)
    result = model(**inputs)
    assert list(result) == [name for name, value in expected.items() if value is not None] == model.output_names
    for name, value in result.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_checkpoint_of_a_model_of_text(tmp_path: Path, frameworks: tuple[Any, Any]) -> None:
    torch, transformers = frameworks
    reference = bert(transformers, "BertForSequenceClassification")
    reference.save_pretrained(tmp_path)
    model = from_pretrained(tmp_path)
    for batch, length in ((1, 5), (3, 17), (2, 40)):
        compare(model, reference, text_inputs(torch, batch, length), torch)
    uneven = {**text_inputs(torch, 2, 5), "attention_mask": torch.ones((2, 6), dtype=torch.int64)}
    with pytest.raises(CallError, match="axis 1 of input_ids is 5, axis 1 of attention_mask is 6"):
        model(**uneven)


@pytest.mark.slow
def test_checkpoints_of_other_models(tmp_path: Path, frameworks: tuple[Any, Any]) -> None:
    torch, transformers = frameworks
    reference = bert(transformers, "BertModel")
    reference.save_pretrained(tmp_path / "text")
    compare(from_pretrained(tmp_path / "text"), reference, text_inputs(torch, 2, 9), torch)


@pytest.mark.slow
def test_a_checkpoint_of_a_model_of_images(tmp_path: Path, frameworks: tuple[Any, Any]) -> None:
    torch, transformers = frameworks
    config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                                    image_size=32, patch_size=8, num_labels=4)  # fmt: skip
    reference = transformers.ViTForImageClassification(config)
    reference.save_pretrained(tmp_path / "image")
    compare(from_pretrained(tmp_path / "image"), reference, {"pixel_values": torch.randn(3, 3, 32, 32)}, torch)


def test_mistakes_with_a_checkpoint(tmp_path: Path, frameworks: tuple[Any, Any]) -> None:
    torch, transformers = frameworks
    bert(transformers, "BertModel").save_pretrained(tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"inputs": {"pixels": torch.ones(1)}}, "BertModel has no input 'pixels'; expected some of input_ids"),
        ({"inputs": {"input_ids": torch.ones(1)}}, "BertModel refuses the examples: "),
        ({"dynamic_shapes": {}}, "dynamic_shapes: given without inputs"),
    ]
    for options, said in cases:
        with pytest.raises(MotetError, match=said) as error:
            from_pretrained(tmp_path, **options)
        assert "\n" not in str(error.value)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(OptionError, match="BertModel cannot be loaded: "):
        from_pretrained(tmp_path)
