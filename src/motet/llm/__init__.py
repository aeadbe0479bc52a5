"""Language models: checkpoints in Hugging Face's layout, compiled with a cache of keys and values, and generation.

    model = motet.llm.load("SmolLM-135M", context=2048)
    print(model.generate("Once upon a time", tokens=32).text)
"""

from motet.llm.model import Generation, LanguageModel, TextPiece, load
from motet.llm.sampling import Sampling

__all__ = ["Generation", "LanguageModel", "Sampling", "TextPiece", "load"]
