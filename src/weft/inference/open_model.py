"""Opening a model by name: a run directory, a model folder, or a name on the Hugging Face hub."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from .. import spec as S
from ..data.preparing.plan import prepared_location
from ..data.shards.store import PreparedFolder
from ..data.tokenizing.tokenizer import Tokenizer
from ..generate.sampling import GREEDY, Sampling, sampling_from, shows_sampling
from ..generate.text_generator import DEFAULT_NEW_TOKENS, TextGenerator, map_rows
from ..interop.huggingface.hub import local_folder
from ..interop.huggingface.sentence_transformers import POOLINGS
from ..interop.loading import load
from ..interop.manifest import model_of_run
from ..nn.kernels.devices import resolve_device
from ..nn.loaded_model import LoadedModel
from ..nn.model import build_on_meta
from ..recipe import verb_for
from ..recipe.data.cells import short
from ..support.folder_files import find_file
from ..support.python_messages import python_errors
from ..tasks.predict import PredictOptions
from ..training.checkpoints.checkpoint import latest_checkpoint
from ..training.checkpoints.compatibility import recipe_of
from ..training.trainable import checkpoint_reader
from . import methods
from .detect import detect
from .images import ImageInput


class OpenModel(LoadedModel):
    """A model with its tokenizer, ready for inference.

    `dir()` lists the methods that the head and the task support; any other method raises a
    ValueError that names a suitable model. Every method takes one input, or a list of inputs, and
    returns one result, or a list in the same order.
    """

    def __dir__(self) -> list[str]:
        allowed = allowed_methods(self.model.spec)
        return sorted(set(super().__dir__()) - METHODS | allowed)

    @shows_sampling
    def generate(
        self,
        prompts: str | list[str],
        *,
        max_new_tokens: int | None = None,
        num_beams: int = 1,
        stop: str | Sequence[str] = (),
        batch_size: int = 32,
        sampling: Sampling | None = None,
        **options: Any,
    ) -> Any:
        """Generate text from a prompt, greedily unless sampling or beam search is selected.

        Args:
            prompts: one prompt, or a list of prompts.
            max_new_tokens: the maximum number of tokens to generate (default: 128, or fewer if the
                model's positions end before).
            num_beams: the number of beams of beam search; 1 selects greedy decoding or sampling
                (default: 1).
            stop: a text, or several, that ends an answer and is not part of it (default: none).
            batch_size: the number of prompts per forward pass (default: 32).
            sampling: the sampling options as one value, in place of `options` (default: greedy).
            options: fields of `weft.Sampling`. temperature: 0 selects greedy decoding (default: 0,
                or 1 if another option enables sampling). top_k, top_p, min_p: sample from the k
                most likely tokens, from the smallest set with this total probability, or from
                tokens at least this fraction as likely as the most likely one. repetition_penalty:
                above 1, tokens that occurred before are less likely. seed: the seed of sampling.

        Returns:
            The text after the prompt, or a list of texts in the order of the prompts.

        Raises:
            ValueError: for an unknown option, a value out of range, or mutually exclusive options.
        """
        check_method(self, "generate")
        check_counts(num_beams=num_beams, batch_size=batch_size)
        texts = as_list(prompts)
        generator = TextGenerator(self)
        chosen = sampling_from(options, sampling)
        stops = stop_strings(stop)
        ids = map_rows(generator.encode_prompt, texts)
        limits = [
            generator.max_new_tokens(prompt, max_new_tokens, DEFAULT_NEW_TOKENS) for prompt in ids
        ]
        if num_beams == 1:
            answers = generator.generate(
                ids,
                max_new_tokens=limits,
                sampling=chosen,
                stop_strings=stops,
                batch_size=batch_size,
            )
        elif chosen != GREEDY or stops:
            raise ValueError(
                f"num_beams={num_beams} cannot be combined with sampling, "
                "repetition_penalty or stop; leave one out"
            )
        else:
            answers = generator.beam_search(
                ids, num_beams=num_beams, max_new_tokens=limits, batch_size=batch_size
            )
        return like_input(prompts, [best.text for best, *_ in answers])

    @shows_sampling
    def stream(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        sampling: Sampling | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """Yield pieces of text during generation; joined, they equal the result of `generate`.

        Args:
            prompt: one prompt.
            max_new_tokens: the maximum number of tokens to generate (default: 128, or fewer if the
                model's positions end before).
            stop: a text, or several, that ends the answer and is not part of it (default: none).
            sampling: the sampling options as one value, in place of `options` (default: greedy).
            options: fields of `weft.Sampling`, such as temperature=0.8, as in `generate`.

        Yields:
            Pieces of text.

        Raises:
            ValueError: at the call, for an unknown option, a value out of range, or a prompt that
                is not a text.
        """
        check_method(self, "stream")
        text = one_text("prompt", prompt)
        generator = TextGenerator(self)
        ids = generator.encode_prompt(text)
        return generator.stream(
            ids,
            max_new_tokens=generator.max_new_tokens(ids, max_new_tokens, DEFAULT_NEW_TOKENS),
            sampling=sampling_from(options, sampling),
            stop_strings=stop_strings(stop),
        )

    def translate(
        self,
        texts: str | list[str],
        *,
        num_beams: int = 4,
        length_penalty: float = 0.6,
        batch_size: int = 32,
    ) -> Any:
        """Translate texts with beam search.

        Args:
            texts: one text, or a list of texts.
            num_beams: the number of beams (default: 4).
            length_penalty: the preference for long translations (Wu et al. 2016, arXiv:1609.08144);
                0 has no effect (default: 0.6).
            batch_size: the number of texts per forward pass (default: 32).

        Returns:
            The translation, or a list of translations in the order of the texts.
        """
        check_method(self, "translate")
        check_counts(batch_size=batch_size)
        translations = TextGenerator(self).translate(
            as_list(texts),
            num_beams=num_beams,
            length_penalty=length_penalty,
            batch_size=batch_size,
        )
        return like_input(texts, translations)

    def classify(self, inputs: Any, *, batch_size: int = 32) -> Any:
        """Classify texts, pairs of texts or images, or predict a number with a regression model.

        Args:
            inputs: a text or a pair of texts, or, for an image model, a file, its bytes or a PIL
                image; or a list of these.
            batch_size: the number of inputs per forward pass (default: 32).

        Returns:
            A dictionary with the probability of every class, or a number from a regression model; a
            list of these for a list of inputs.
        """
        check_method(self, "classify")
        check_counts(batch_size=batch_size)
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
        """Tag every word of a sentence.

        Args:
            sentences: a text, which is split at spaces, or a tuple of words; or a list of these.
            batch_size: the number of sentences per forward pass (default: 32).

        Returns:
            A list of (word, tag, probability) per sentence.
        """
        check_method(self, "tag")
        check_counts(batch_size=batch_size)
        rows = as_list(sentences, str, tuple, list)
        words = [s.split() if isinstance(s, str) else list(s) for s in rows]
        tags_by_sentence = methods.tag(self, words, PredictOptions(batch_size))
        tagged = [
            [(word, *tag) for word, tag in zip(sentence, tags, strict=True)]
            for sentence, tags in zip(words, tags_by_sentence, strict=True)
        ]
        return like_input(sentences, tagged)

    def answer(self, question: str, context: str) -> str:
        """Return the span of `context` that answers `question`.

        Args:
            question: the question.
            context: the text that contains the answer.
        """
        check_method(self, "answer")
        pair = one_text("question", question), one_text("context", context)
        return methods.answer(self, [pair])[0].text

    def fill(self, texts: str | list[str], *, top_k: int = 5, batch_size: int = 32) -> Any:
        """Predict the masked words of a text.

        Args:
            texts: one text with `[MASK]` or the model's mask token, or a list of texts.
            top_k: the number of predictions per mask (default: 5).
            batch_size: the number of texts per forward pass (default: 32).

        Returns:
            Per mask of a text, the most likely tokens with their probabilities.
        """
        check_method(self, "fill")
        check_counts(batch_size=batch_size)
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
        """Compute one embedding vector per text or image.

        Args:
            inputs: one text, or, for an image model, a file, its bytes or a PIL image; or a list of
                these.
            pooling: "mean", "max", "cls" or "last" (default: from the model's folder, else "mean";
                for images the class token).
            normalise: scale each vector to length 1 (default: from the model's folder).
            batch_size: the number of inputs per forward pass (default: 32).

        Returns:
            A tensor of shape (width,), or (inputs, width) for a list.
        """
        check_method(self, "embed")
        check_counts(batch_size=batch_size)
        if pooling not in (None, *POOLINGS.values()):
            raise ValueError(f"pooling = {pooling!r}; give one of {', '.join(POOLINGS.values())}")
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
        """Detect objects in images.

        Args:
            images: a path, the bytes of a file or a PIL image, or a list of them.
            threshold: the minimum score of a returned object (default: 0.5).
            batch_size: the number of images per forward pass (default: 32).

        Returns:
            Per image, a list of dictionaries sorted by score, with `label`, `score`, and `box` as
            x, y, width and height in pixels.
        """
        check_method(self, "detect")
        check_counts(batch_size=batch_size)
        listed = as_list(images, *IMAGES)
        return like_input(images, detect(self, listed, threshold, PredictOptions(batch_size)))


IMAGES = (str, os.PathLike, bytes, Image.Image)
METHODS = {
    "detect",
    "generate",
    "stream",
    "translate",
    "classify",
    "tag",
    "answer",
    "fill",
    "embed",
}

for _method in METHODS:
    setattr(OpenModel, _method, python_errors(pairs="(first, second)")(getattr(OpenModel, _method)))


def allowed_methods(spec: S.Spec) -> set[str]:
    """Return the methods of an opened model that its inputs, stacks and head support."""
    allowed = {"embed"} if isinstance(spec.source, S.Tokens | S.Patches) else set[str]()
    if not (isinstance(spec.source, S.Tokens) and isinstance(spec.head, S.LMHead)):
        return allowed | METHODS & {verb_for(spec)}
    allowed |= {"fill"} if spec.decoder is None else {"generate", "stream"}
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


def check_counts(**counts: Any) -> None:
    """Raise ValueError for an argument that is not an integer of at least 1."""
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} = {count!r}; give an integer of at least 1")


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """Return the texts that end an answer as a tuple."""
    texts = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"stop = {stop!r}; give one or several non-empty texts")
    return texts


def as_list(inputs: Any, *types: type) -> list[Any]:
    """Return one input, or a list of inputs, as a list; a tuple is one input, such as a pair of
    texts.

    Raises:
        ValueError: if an input has none of the types (default: str).
    """
    items = list(inputs) if isinstance(inputs, list) else [inputs]
    expected = {"image": "a file, its bytes or a PIL image", "text": "a text"}
    for item in items:
        if not isinstance(item, types or str):
            what = "image" if Image.Image in types else "text"
            raise ValueError(
                f"{short(item)} is of type {type(item).__name__}; give {expected[what]}, "
                f"or a list of {what}s"
            )
    return items


def one_text(name: str, text: object) -> str:
    """Return the text; raise ValueError for any other value, such as a list of texts."""
    if not isinstance(text, str):
        raise ValueError(
            f"{name} = {short(text)} is of type {type(text).__name__}; give one text, "
            "and call this method once per text"
        )
    return text


def like_input(inputs: Any, results: list[Any]) -> Any:
    return results if isinstance(inputs, list) else results[0]


def open_model(
    name: str | Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "auto"
) -> OpenModel:
    """Open a model with its tokenizer; for an unfinished run, its newest checkpoint.

    Args:
        name: a run directory, a model folder, "demo" (included in Weft), or a name on the Hugging
            Face hub.
        dtype: the data type of the weights.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for an accelerator if available, else the
            CPU.
    """
    device = resolve_device(device)
    folder = local_folder(name)
    if not (folder / "recipe.json").is_file():
        model = load(folder, dtype=dtype, device=device)
        return OpenModel(str(name), model, load_tokenizer(folder, model.spec), None, folder)
    recipe = recipe_of(folder, complain)
    model_folder = model_of_run(folder)
    if model_folder is not None:
        model = load(model_folder, dtype=dtype, device=device)
        return OpenModel(str(name), model, load_tokenizer(model_folder, model.spec), recipe, folder)
    checkpoint = latest_checkpoint(folder / "checkpoints", complain)
    if checkpoint is None:
        raise ValueError(f"{folder} has no checkpoint; train it with weft train")
    data = PreparedFolder(str(prepared_location(recipe.data)))
    labels = json.loads(data.read_text("data.json"))["labels"]
    model = build_on_meta(S.with_label_names(recipe.model, labels)).to(dtype)
    model.to_empty(device=device)
    read = checkpoint_reader(checkpoint, recipe.model, recipe.trainable)
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
    """Return the tokenizer in a model's folder, which never returns ids outside the model's
    vocabulary."""
    file = find_file(folder, "tokenizer.json")
    tokenizer = Tokenizer.load(file) if file else None
    value = getattr(spec.source, "vocab_size", None)
    if tokenizer is not None and value is not None and tokenizer.size > value:
        tokenizer.limit = value
    return tokenizer
