"""Opening a model by any name: the folder of a run, the folder of a model, a name on the Hugging Face hub."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from .. import spec as S
from ..data.folder_files import find_file
from ..data.prepare import prepared_location
from ..data.store import PreparedFolder
from ..data.tokenizer import Tokenizer
from ..generate.sampling import GREEDY, Sampling
from ..generate.text_generator import TextGenerator
from ..interop.hub import local_folder
from ..interop.loading import load
from ..kernels.devices import resolve_device
from ..model.loaded_model import LoadedModel
from ..model.model import build_on_meta
from ..recipe import verb_for
from ..recipe.cells import short
from ..tasks.predict import PredictOptions
from ..training.checkpoint import latest_checkpoint
from ..training.compatibility import recipe_of
from ..training.trainable import checkpoint_reader
from . import methods
from .detect import detect
from .images import ImageInput


class OpenModel(LoadedModel):
    """A model with its tokenizer, ready for inference. `dir()` lists the methods that its head and its task allow; another one
    raises a ValueError that says which model has it.

    Every method takes one text, or a list of texts, and returns one result, or a list in the same order.
    """

    def __dir__(self) -> list[str]:
        allowed = allowed_methods(self.model.spec)
        return sorted(set(super().__dir__()) - METHODS | allowed)

    def generate(
        self,
        prompts: str | list[str],
        *,
        max_new_tokens: int = 128,
        num_beams: int = 1,
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        batch_size: int = 32,
    ) -> Any:
        """Generate text from a prompt.

        Args:
            prompts: one prompt, or a list of prompts.
            max_new_tokens: the maximum number of tokens to generate.
            num_beams: the number of beams of beam search; 1 decodes greedily or samples.
            sampling: temperature, top-k, top-p, seed (default: greedy decoding).
            stop: texts that end an answer; they are not part of it.
            batch_size: the number of prompts per forward pass.
        """
        check_method(self, "generate")
        texts, generator = as_list(prompts), TextGenerator(self)
        if num_beams == 1:
            completions = generator.complete(
                texts,
                max_new_tokens=max_new_tokens,
                sampling=sampling,
                stop_strings=tuple(stop),
                batch_size=batch_size,
            )
        else:
            beams = generator.beam_search(
                texts, num_beams=num_beams, max_new_tokens=max_new_tokens, batch_size=batch_size
            )
            completions = [answers[0].text for answers in beams]
        return like_input(prompts, completions)

    def translate(
        self,
        texts: str | list[str],
        *,
        num_beams: int = 4,
        length_penalty: float = 0.6,
        batch_size: int = 32,
    ) -> Any:
        """Translate texts with beam search."""
        check_method(self, "translate")
        translations = TextGenerator(self).translate(
            as_list(texts),
            num_beams=num_beams,
            length_penalty=length_penalty,
            batch_size=batch_size,
        )
        return like_input(texts, translations)

    def classify(self, inputs: Any, *, batch_size: int = 32) -> Any:
        """Return the probability of every class as a dictionary, or a number from a regression model.

        Args:
            inputs: a text or a pair of texts, or, for a model of images, a file, its bytes or a PIL image; or a list of these.
            batch_size: the number of inputs per forward pass.
        """
        check_method(self, "classify")
        types = IMAGES if self.reads_images else (str, tuple, list)
        pairs = [
            tuple(item) if isinstance(item, tuple | list) else (item, None)
            for item in as_list(inputs, *types)
        ]
        probabilities = methods.classify(self, pairs, PredictOptions(batch_size))
        names = methods.label_names(self)
        named = [
            p if isinstance(p, float) else dict(zip(names, p, strict=True)) for p in probabilities
        ]
        return like_input(inputs, named)

    def tag(self, sentences: Any, *, batch_size: int = 32) -> Any:
        """Return (word, tag, probability) for every word of a sentence: a text, split at spaces, or a list of words."""
        check_method(self, "tag")
        rows = as_list(sentences, str, tuple, list)
        words = [s.split() if isinstance(s, str) else list(s) for s in rows]
        tags_by_sentence = methods.tag(self, words, PredictOptions(batch_size))
        tagged = [
            [(word, *tag) for word, tag in zip(sentence, tags, strict=True)]
            for sentence, tags in zip(words, tags_by_sentence, strict=True)
        ]
        return like_input(sentences, tagged)

    def answer(self, question: str, context: str) -> str:
        """Return the span of `context` that answers `question`."""
        check_method(self, "answer")
        question, context = as_list([question, context])
        return methods.answer(self, [(question, context)])[0].text

    def fill(self, texts: str | list[str], *, top_k: int = 5, batch_size: int = 32) -> Any:
        """Return the most likely tokens and their probabilities for every mask of a text."""
        check_method(self, "fill")
        predictions = methods.fill(self, as_list(texts), top_k, PredictOptions(batch_size))
        return like_input(texts, predictions)

    def embed(
        self,
        inputs: Any,
        *,
        pooling: str | None = None,
        normalise: bool | None = None,
        batch_size: int = 32,
    ) -> Tensor:
        """Compute one embedding vector per text or image: a tensor (width,), or (inputs, width) for a list.

        Args:
            inputs: one text, or, for a model of images, a file, its bytes or a PIL image; or a list of these.
            pooling: "mean", "max", "cls" or "last" (default: as the model's folder says, else "mean"; of images the class token).
            normalise: scale every vector to length 1 (default: as the model's folder says).
            batch_size: the number of inputs per forward pass.
        """
        check_method(self, "embed")
        items = as_list(inputs, *(IMAGES if self.reads_images else (str,)))
        vectors = methods.embed(self, items, pooling, normalise, PredictOptions(batch_size))
        return torch.tensor(vectors if isinstance(inputs, list) else vectors[0])

    def detect(
        self,
        images: ImageInput | list[ImageInput],
        *,
        threshold: float = 0.5,
        batch_size: int = 32,
    ) -> Any:
        """Return the objects of an image, the surest first: dictionaries with `label`, `score`, and `box` as x, y, width and
        height in pixels.

        Args:
            images: a path, the bytes of a file or a PIL image, or a list of them.
            threshold: the lowest score of an object that is returned.
            batch_size: the number of images per forward pass.
        """
        check_method(self, "detect")
        listed = as_list(images, *IMAGES)
        return like_input(images, detect(self, listed, threshold, PredictOptions(batch_size)))


IMAGES = (str, os.PathLike, bytes, Image.Image)
METHODS = {"detect", "generate", "translate", "classify", "tag", "answer", "fill", "embed"}


def allowed_methods(spec: S.Spec) -> set[str]:
    """The methods of an opened model that its inputs, stacks and head allow."""
    allowed = {"embed"} if isinstance(spec.source, S.Tokens | S.Patches) else set[str]()
    if not (isinstance(spec.source, S.Tokens) and isinstance(spec.head, S.LMHead)):
        return allowed | METHODS & {verb_for(spec)}
    allowed.add("fill" if spec.decoder is None else "generate")
    if spec.encoder is not None and spec.decoder is not None:
        allowed |= {"translate", "classify"}
    return allowed


def check_method(model: LoadedModel, name: str) -> None:
    allowed = allowed_methods(model.model.spec)
    if name not in allowed:
        raise ValueError(
            f"{model.name} cannot {name}: its head is {type(model.model.spec.head).__name__}; "
            f"it can {', '.join(sorted(allowed)) or 'only be evaluated'}"
        )


def as_list(inputs: Any, *types: type) -> list[Any]:
    """One input, or a list of them, as a list; a tuple is one input, such as a pair of texts.

    Raises:
        ValueError: if an input has none of the types (default: str).
    """
    items = list(inputs) if isinstance(inputs, list) else [inputs]
    expected = {"image": "a file, its bytes or a PIL image", "text": "a text"}
    for item in items:
        if not isinstance(item, types or str):
            what = "image" if Image.Image in types else "text"
            raise ValueError(
                f"{short(item)} is of type {type(item).__name__}; give {expected[what]}, or a list of {what}s"
            )
    return items


def like_input(inputs: Any, results: list[Any]) -> Any:
    return results if isinstance(inputs, list) else results[0]


def open_model(
    name: str | Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "auto"
) -> OpenModel:
    """Open a model with its tokenizer; of a run that is not finished, the newest checkpoint.

    Args:
        name: the folder of a run, the folder of a model, "demo" (ships with Weft), or a name on the Hugging Face hub.
        dtype: of the weights.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for an accelerator if available, else the CPU.
    """
    device, folder = resolve_device(device), local_folder(name)
    if not (folder / "recipe.json").is_file():
        model = load(folder, dtype=dtype, device=device)
        return OpenModel(str(name), model, load_tokenizer(folder, model.spec), None, folder)
    recipe = recipe_of(folder, complain)
    if (folder / "model").is_dir():
        model = load(folder / "model", dtype=dtype, device=device)
        return OpenModel(
            str(name), model, load_tokenizer(folder / "model", model.spec), recipe, folder
        )
    checkpoint = latest_checkpoint(folder / "checkpoints", complain)
    if checkpoint is None:
        raise ValueError(f"{folder} has no checkpoint yet; weft train trains it")
    data = PreparedFolder(str(prepared_location(recipe.data)))
    labels = json.loads(data.read_text("data.json"))["labels"]
    model = build_on_meta(S.with_label_names(recipe.model, labels)).to(dtype)
    model.to_empty(device=device)
    read = checkpoint_reader(checkpoint, recipe)
    for key, tensor in model.state_dict().items():
        tensor.copy_(read(key))
    return OpenModel(
        str(name),
        model.eval(),
        Tokenizer(data.tokenizer()) if recipe.data.tokenizer else None,
        recipe,
        folder,
    )


def complain(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr)


def load_tokenizer(folder: Path, spec: S.Spec) -> Tokenizer | None:
    """Return the tokenizer in a model's folder; it never gives ids outside the model's vocabulary."""
    file = find_file(folder, "tokenizer.json")
    tokenizer = Tokenizer.load(file) if file else None
    value = getattr(spec.source, "vocab_size", None)
    if tokenizer is not None and value is not None and tokenizer.size > value:
        tokenizer.limit = value
    return tokenizer
