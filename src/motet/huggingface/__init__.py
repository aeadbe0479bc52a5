"""Models in local folders with Hugging Face's layout:

    model = motet.huggingface.from_pretrained("folder")
    logits = model(input_ids=ids, attention_mask=mask)["logits"]

Models that generate text are loaded by `motet.llm.load`.
"""

from motet.huggingface.model import PretrainedModel, from_pretrained

__all__ = ["PretrainedModel", "from_pretrained"]
