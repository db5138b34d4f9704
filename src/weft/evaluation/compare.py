"""Comparison of a folder with transformers from end to end, from text and pixels to answers."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .. import spec as S
from ..data.images.images import decode
from ..data.images.transforms import ImagePipeline
from ..data.tokenizing.tokenizer import SPECIAL_TOKEN_NAMES, SPECIAL_TOKENS, Tokenizer
from ..generate.text_generator import TextGenerator
from ..inference.methods import classify, embed, row_length
from ..interop.huggingface.image_processor import image_transforms
from ..interop.huggingface.sentence_transformers import read_modules
from ..interop.huggingface.verify import import_transformers, load_in_transformers
from ..nn.heads import pool_tokens
from ..nn.layers.sequence import HiddenStates as Vectors
from ..nn.loaded_model import LoadedModel

LIMIT = 1e-5  # above it, two float32 implementations do not do the same
TEXTS = (
    "A small dog runs.",
    "the man went to the river",
    " a space first",
    "a space last ",
    "two  spaces",
    "one\nline\n\nthen another",
    "tab\there",
    "Größe, naïve café",
    "ﬁne ½ Å",
    "日本語のテキスト",
    "Привет, мир!",
    "emoji 🙂👍🏽",
    "zero\u200bwidth, no\u00a0break",
    "Don't stop: 3.14 (e.g.)!",
    "UPPER lower MiXeD",
    "aaaa aaaaaaaaaaaa",
    "a </s> <s> [SEP] [MASK] <pad> <unk> b",
    "<|endoftext|><extra_id_0>",
    "",
    " ",
    "\n",
)
PAIRS = (("A dog runs.", "It sleeps."), ("two  spaces", " Größe"), ("日本語", "a b c"))
LENGTH = 12  # tokens to generate


class ComparisonResult(NamedTuple):
    """What was compared, how many, how many differ, and the first difference."""

    name: str
    compared: int
    differ: int
    first: str = ""

    @property
    def line(self) -> str:
        return (
            f"{self.differ} of {self.compared} differ, the first: {self.first}"
            if self.differ
            else f"the same for {self.compared}"
        )


def summarise(name: str, results: Iterator[tuple[object, bool]]) -> ComparisonResult:
    listed = list(results)
    wrong = [repr(what) for what, same in listed if not same]
    return ComparisonResult(name, len(listed), len(wrong), wrong[0] if wrong else "")


def compare_with_transformers(
    model: LoadedModel, folder: Path, which: Sequence[str] = ()
) -> list[ComparisonResult]:
    """Run every comparison that applies to this model, or the named ones."""
    s = model.model.spec
    text = (folder / "tokenizer.json").exists()
    generates = text and isinstance(s.head, S.LMHead) and s.decoder is not None
    scores = text and isinstance(s.head, S.ClassifierHead)
    applicable = {
        "tokens": text,
        "images": isinstance(s.source, S.Patches)
        and (folder / "preprocessor_config.json").exists(),
        "generation": generates,
        "embeddings": text and isinstance(s.source, S.Tokens),
        "classes": scores,
    }
    comparisons = {
        "tokens": compare_tokens,
        "images": compare_images,
        "generation": compare_generation,
        "embeddings": compare_embeddings,
        "classes": compare_classes,
    }
    return [
        comparisons[name](model, folder)
        for name, sensible in applicable.items()
        if sensible and (not which or name in which)
    ]


def transformers_tokenizer(folder: Path) -> Any:
    return import_transformers().AutoTokenizer.from_pretrained(folder)


def encodable_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the texts that a tokenizer can encode;
    one with a closed set of characters gets texts of its own."""

    def known(text: str) -> bool:
        try:
            return len(tokenizer.encode(text)) > 0
        except ValueError:
            return False

    alphabet = (
        "".join(sorted(name for name in tokenizer.inner.get_vocab() if len(name) == 1)[:16])
        if tokenizer.table is not None
        else ""
    )
    return [text for text in (*TEXTS, alphabet) if known(text)]


def texts_without_specials(tokenizer: Tokenizer) -> list[str]:
    """Return the texts that are not empty and name no special token: in transformers such a name
    becomes the token, here it stays text."""
    special_tokens = {name for names in SPECIAL_TOKEN_NAMES.values() for name in names} | {
        "<extra_id_0>"
    }
    return [
        text
        for text in encodable_texts(tokenizer)
        if text.strip() and not any(name in text for name in special_tokens)
    ]


def fitting_texts(model: LoadedModel, new_tokens: int = 0) -> list[str]:
    """Return the texts without special tokens,
    each cut to what the model reads with that many tokens after it."""
    tokenizer = model.require_tokenizer
    limit = row_length(model) - new_tokens
    before, after = tokenizer.special_frame()
    fitting = []
    for text in texts_without_specials(tokenizer):
        while text and len(before) + len(tokenizer.encode(text)) + len(after) > limit:
            text = text[:-1]
        if text.strip():
            fitting.append(text)
    return list(dict.fromkeys(fitting))


# Tokens


def compare_tokens(model: LoadedModel, folder: Path) -> ComparisonResult:
    """Compare ids of texts and pairs with their special tokens, token types,
    ids of special tokens, and decoded texts."""
    ours = model.require_tokenizer
    other = transformers_tokenizer(folder)

    def each() -> Iterator[tuple[object, bool]]:
        before, after = ours.special_frame()
        for text in encodable_texts(ours):
            ids = [*before, *ours.encode(text).tolist(), *after]
            yield text, other(text, split_special_tokens=True)["input_ids"] == ids
            yield f"{text} decoded", other.decode(ids, skip_special_tokens=True) == ours.decode(ids)
        for first, second in PAIRS if ours.table is None else ():
            encoded = ours.inner.encode(first, second)
            encoding = other(first, second)
            yield (
                (first, second),
                encoding["input_ids"] == encoded.ids
                and encoding.get("token_type_ids", encoded.type_ids) == encoded.type_ids,
            )
        for role in SPECIAL_TOKENS:
            token_id = getattr(other, f"{role}_token_id")
            if role in ours.special and token_id is not None:
                yield f"{role}_token", token_id == ours.special[role]
        for name in {name for names in SPECIAL_TOKEN_NAMES.values() for name in names} & set(
            ours.inner.get_vocab()
        ):
            yield name, other.convert_tokens_to_ids(name) == ours.inner.token_to_id(name)

    return summarise("tokens", each())


# Images


def compare_images(model: LoadedModel, folder: Path) -> ComparisonResult:
    """Compare the pixels of images of several shapes and modes,
    from the bytes of the file to the input of the model."""
    s = model.model.spec.source
    draw = np.random.default_rng(0)
    assert isinstance(s, S.Patches)
    other = import_transformers().AutoImageProcessor.from_pretrained(folder, backend="pil")
    pipeline = ImagePipeline(image_transforms(folder, model.model.spec))

    def each() -> Iterator[tuple[object, bool]]:
        for side in ((48, 32), (33, 57), (32, 32), (20, 31), (300, 201)):
            shape = (*side[::-1], 3) if s.channels == 3 else side[::-1]
            file = BytesIO()
            Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)).save(file, "PNG")
            ours = pipeline(decode(file.getvalue(), s.channels), None, draw)[0]
            pixels = np.asarray(other(Image.open(file), return_tensors="np")["pixel_values"][0])
            yield side, pixels.shape == ours.shape and float(np.abs(pixels - ours).max()) <= LIMIT

    return summarise("images", each())


# Answers


def transformers_generate(
    other: Any, model: Any, text: str, start: int, max_new_tokens: int, **options: Any
) -> list[int]:
    """Return the tokens that transformers generates, up to and with the end token."""
    inputs = other(text, return_tensors="pt")
    options |= {"max_new_tokens": max_new_tokens, "do_sample": False}
    ids: list[int] = model.generate(**inputs, **options)[0].tolist()
    ids = ids[start or inputs["input_ids"].shape[1] :]
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    stop = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
    return ids[:stop]


@torch.no_grad()
def compare_generation(loaded: LoadedModel, folder: Path) -> ComparisonResult:
    """Compare greedy decoding and, for an encoder-decoder, beam search without a length penalty
    (that of transformers differs)."""
    writer = TextGenerator(loaded)
    other = transformers_tokenizer(folder)
    model = load_in_transformers(folder, torch.float32)
    is_encoder_decoder = loaded.model.encoder is not None
    length = min(LENGTH, row_length(loaded) // 2)

    def each() -> Iterator[tuple[object, bool]]:
        for text in fitting_texts(loaded, 0 if is_encoder_decoder else length)[:6]:
            ours = writer.generate([text], max_new_tokens=length)[0][0].tokens.tokens
            yield (
                text,
                ours
                == transformers_generate(
                    other, model, text, int(is_encoder_decoder), length, num_beams=1
                ),
            )
            if is_encoder_decoder:
                best = writer.beam_search(
                    [text], num_beams=4, length_penalty=0.0, max_new_tokens=length
                )[0][0].tokens.tokens
                yield (
                    f"{text} by beams",
                    best
                    == transformers_generate(
                        other, model, text, 1, length, num_beams=4, length_penalty=0.0
                    ),
                )

    return summarise("generation", each())


@torch.no_grad()
def compare_embeddings(model: LoadedModel, folder: Path) -> ComparisonResult:
    """Compare one embedding per text: with sentence-transformers where the folder has modules and
    it is installed, else with the pooled last layer of transformers."""
    texts = fitting_texts(model)
    modules = read_modules(folder)
    ours = torch.tensor(embed(model, texts))
    if (
        modules is not None
        and modules.dense is None
        and (vectors := sentence_vectors(folder, texts)) is not None
    ):
        other = vectors
    else:
        other = transformers_embeddings(
            model, folder, texts, modules.pooling if modules else "mean"
        )
        other = (
            torch.nn.functional.normalize(other, dim=-1) if modules and modules.normalise else other
        )
    far = (ours - other).abs().amax(1) <= LIMIT * max(1.0, float(ours.abs().max()))
    return summarise("embeddings", zip(texts, far.tolist(), strict=True))


def sentence_vectors(folder: Path, texts: list[str]) -> Tensor | None:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return None
    return torch.from_numpy(
        SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)
    )


def transformers_embeddings(
    loaded: LoadedModel, folder: Path, texts: list[str], pooling: str
) -> Tensor:
    tokenizer = transformers_tokenizer(folder)
    rows = []
    model = load_in_transformers(folder, torch.float32)
    model = (
        model.get_encoder()
        if loaded.model.encoder is not None and loaded.model.decoder is not None
        else model
    )
    for text in texts:
        batch = tokenizer(text, return_tensors="pt")
        outputs = model(**batch, output_hidden_states=True)
        last = (
            outputs.last_hidden_state
            if getattr(outputs, "last_hidden_state", None) is not None
            else outputs.hidden_states[-1]
        )
        rows.append(pool_tokens(Vectors(last), pooling)[0])
    return torch.stack(rows)


@torch.no_grad()
def compare_classes(model: LoadedModel, folder: Path) -> ComparisonResult:
    """Compare every probability, or the number, of texts and pairs."""
    tokenizer = model.require_tokenizer
    limit = row_length(model)
    texts: list[Any] = [(text, None) for text in fitting_texts(model)] + [
        pair
        for pair in PAIRS
        if tokenizer.table is None and len(tokenizer.inner.encode(*pair).ids) <= limit
    ]
    kinds = [[text for text in texts if (text[1] is None) == single] for single in (True, False)]
    ours = [
        torch.tensor(probabilities).view(-1)
        for kind in kinds
        if kind
        for probabilities in classify(model, kind)
    ]
    scores = transformers_logits(folder, texts)
    return summarise(
        "classes",
        (
            (
                text,
                float(
                    (probabilities - (other.softmax(-1) if len(other) > 1 else other)).abs().max()
                )
                <= LIMIT,
            )
            for text, probabilities, other in zip(texts, ours, scores, strict=True)
        ),
    )


def transformers_logits(folder: Path, texts: list[Any]) -> list[Tensor]:
    modules = read_modules(folder)
    if modules is not None and modules.dense is not None:
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(str(folder), device="cpu")
        return [
            model(model.preprocess([text[0] if text[1] is None else text]))["scores"][0]
            for text in texts
        ]
    other = transformers_tokenizer(folder)
    model = load_in_transformers(folder, torch.float32)
    return [
        model(**other(*[t for t in text if t is not None], return_tensors="pt")).logits[0]
        for text in texts
    ]
