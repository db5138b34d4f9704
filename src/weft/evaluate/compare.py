"""From text and pixels to answers: a folder here and in transformers, compared where a user meets it, not at the model's outputs alone."""
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .. import spec as S
from ..data.image import centre, decode, normalise
from ..data.tokenizer import NAMES, Tokenizer
from ..generate.text import Writer
from ..interop.modules import modules_of
from ..interop.verify import need_transformers, theirs
from ..layers.sequence import Sequence as Vectors
from ..model.head import pool
from .ask import Known, classify, embed

LIMIT = 1e-5                               # above it, two float32 implementations do not do the same
TEXTS = (
    "A small dog runs.", "the man went to the river", " a space first", "a space last ", "two  spaces", "one\nline\n\nthen another",
    "tab\there", "Größe, naïve café", "ﬁne ½ Å", "日本語のテキスト", "Привет, мир!", "emoji 🙂👍🏽", "zero\u200bwidth, no\u00a0break",
    "Don't stop: 3.14 (e.g.)!", "UPPER lower MiXeD", "aaaa aaaaaaaaaaaa",
    "a </s> <s> [SEP] [MASK] <pad> <unk> b", "<|endoftext|><extra_id_0>", "", " ", "\n")
PAIRS = (("A dog runs.", "It sleeps."), ("two  spaces", " Größe"), ("日本語", "a b c"))
LENGTH = 12                                # tokens to generate


class Check(NamedTuple):
    """What was compared, how many, how many differ, and the first of these."""
    name: str
    compared: int
    differ: int
    first: str = ""

    @property
    def line(self) -> str:
        return f"{self.differ} of {self.compared} differ, the first: {self.first}" if self.differ else f"the same for {self.compared}"


def check(name: str, found: Iterator[tuple[object, bool]]) -> Check:
    listed = list(found)
    wrong = [repr(what) for what, same in listed if not same]
    return Check(name, len(listed), len(wrong), wrong[0] if wrong else "")


def compare(known: Known, folder: Path, which: Sequence[str] = ()) -> list[Check]:
    """Every comparison that makes sense for this model; of these, those that are named."""
    s, text = known.model.spec, (folder / "tokenizer.json").exists()
    generates = text and isinstance(s.head, S.Vocabulary) and s.decoder is not None
    scores = text and isinstance(s.head, S.Classes)
    wanted = {"tokens": text, "images": isinstance(s.source, S.Patches) and (folder / "preprocessor_config.json").exists(),
              "generation": generates, "embeddings": text and isinstance(s.source, S.Tokens), "classes": scores}
    made = {"tokens": tokens, "images": images, "generation": generation, "embeddings": embeddings, "classes": classes}
    return [made[name](known, folder) for name, sensible in wanted.items() if sensible and (not which or name in which)]


def their_tokenizer(folder: Path) -> Any:
    return need_transformers().AutoTokenizer.from_pretrained(folder)


def readable(tokenizer: Tokenizer) -> list[str]:
    """The texts of which a tokenizer makes tokens; one of a closed set of characters refuses others, and is given its own."""
    def known(text: str) -> bool:
        try:
            return len(tokenizer.encode(text)) > 0
        except ValueError:
            return False
    own = "".join(sorted(name for name in tokenizer.inner.get_vocab() if len(name) == 1)[:16]) if tokenizer.table is not None else ""
    return [text for text in (*TEXTS, own) if known(text)]


def plain(tokenizer: Tokenizer) -> list[str]:
    """Of these, those that say something and name no mark: in transformers the name of a mark in a text is the mark, here it is text."""
    marks = {name for names in NAMES.values() for name in names} | {"<extra_id_0>"}
    return [text for text in readable(tokenizer) if text.strip() and not any(name in text for name in marks)]


# Tokens

def tokens(known: Known, folder: Path) -> Check:
    """Ids of texts and pairs with what stands around them, segments, ids of the marks, and texts of ids."""
    ours, other = known.text, their_tokenizer(folder)

    def each() -> Iterator[tuple[object, bool]]:
        before, after = ours.frame()
        for text in readable(ours):
            ids = [*before, *ours.encode(text).tolist(), *after]
            yield text, other(text, split_special_tokens=True)["input_ids"] == ids
            yield f"{text} decoded", other.decode(ids, skip_special_tokens=True) == ours.decode(ids)
        for first, second in PAIRS if ours.table is None else ():
            pair, found = ours.inner.encode(first, second), other(first, second)
            yield (first, second), found["input_ids"] == pair.ids and found.get("token_type_ids", pair.type_ids) == pair.type_ids
        roles = {"pad": "pad", "unknown": "unk", "begin": "bos", "end": "eos", "mask": "mask"}
        for mark, role in roles.items():
            if mark in ours.special and (own := getattr(other, f"{role}_token_id")) is not None:
                yield f"{role}_token", own == ours.special[mark]
        for name in {name for names in NAMES.values() for name in names} & set(ours.inner.get_vocab()):
            yield name, other.convert_tokens_to_ids(name) == ours.inner.token_to_id(name)
    return check("tokens", each())


# Images

def images(known: Known, folder: Path) -> Check:
    """Pixels of images of several shapes and modes, from the file's bytes to the model's input."""
    s, draw = known.model.spec.source, np.random.default_rng(0)
    assert isinstance(s, S.Patches)
    other = need_transformers().AutoImageProcessor.from_pretrained(folder, backend="pil")

    def each() -> Iterator[tuple[object, bool]]:
        for side in ((48, 32), (33, 57), (32, 32), (20, 31), (300, 201)):
            shape = (*side[::-1], 3) if s.channels == 3 else side[::-1]
            file = BytesIO()
            Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)).save(file, "PNG")
            ours = normalise(centre(decode(file.getvalue(), s.channels), s.image))
            found = np.asarray(other(Image.open(file), return_tensors="np")["pixel_values"][0])
            yield side, found.shape == ours.shape and float(np.abs(found - ours).max()) <= LIMIT
    return check("images", each())


# Answers

def their_ids(other: Any, model: Any, text: str, start: int, **how: Any) -> list[int]:
    """What transformers adds to a text, up to and with the end."""
    given = other(text, return_tensors="pt")
    found: list[int] = model.generate(**given, max_new_tokens=LENGTH, do_sample=False, **how)[0].tolist()
    found = found[start or given["input_ids"].shape[1]:]
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    stop = next((i + 1 for i, token in enumerate(found) if token in ends), len(found))
    return found[:stop]


@torch.no_grad()
def generation(known: Known, folder: Path) -> Check:
    """Greedy answers, and an encoder-decoder's by beam search without a length penalty (transformers has another one than ours)."""
    writer, other, model = Writer(known), their_tokenizer(folder), theirs(folder, torch.float32)
    pair = known.model.encoder is not None

    def each() -> Iterator[tuple[object, bool]]:
        for text in plain(known.text)[:6]:
            ours = writer.answer([text], most=LENGTH)[0][0].said.tokens
            yield text, ours == their_ids(other, model, text, int(pair), num_beams=1)
            if pair:
                best = writer.search([text], beams=4, alpha=0.0, most=LENGTH)[0][0].said.tokens
                yield f"{text} by beams", best == their_ids(other, model, text, 1, num_beams=4, length_penalty=0.0)
    return check("generation", each())


@torch.no_grad()
def embeddings(known: Known, folder: Path) -> Check:
    """A vector per text: sentence-transformers' where the folder has modules and it is installed, else transformers' last, pooled."""
    texts, modules = plain(known.text), modules_of(folder)
    ours = torch.tensor(embed(known, texts))
    if modules is not None and modules.dense is None and (found := sentence_vectors(folder, texts)) is not None:
        other = found
    else:
        other = their_vectors(known, folder, texts, modules.pooling if modules else "mean")
        other = torch.nn.functional.normalize(other, dim=-1) if modules and modules.normalise else other
    far = (ours - other).abs().amax(1) <= LIMIT * max(1.0, float(ours.abs().max()))
    return check("embeddings", zip(texts, far.tolist(), strict=True))


def sentence_vectors(folder: Path, texts: list[str]) -> Tensor | None:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return None
    return torch.from_numpy(SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False))


def their_vectors(known: Known, folder: Path, texts: list[str], pooling: str) -> Tensor:
    given = their_tokenizer(folder)
    rows = []
    model = theirs(folder, torch.float32)
    model = model.get_encoder() if known.model.encoder is not None and known.model.decoder is not None else model
    for text in texts:
        batch = given(text, return_tensors="pt")
        found = model(**batch, output_hidden_states=True)
        last = found.last_hidden_state if getattr(found, "last_hidden_state", None) is not None else found.hidden_states[-1]
        rows.append(pool(Vectors(last), pooling)[0])
    return torch.stack(rows)


@torch.no_grad()
def classes(known: Known, folder: Path) -> Check:
    """Of texts and pairs, every probability or the number."""
    texts: list[Any] = [(text, None) for text in plain(known.text)] + list(PAIRS if known.text.table is None else ())
    kinds = [[text for text in texts if (text[1] is None) == single] for single in (True, False)]
    ours = [torch.tensor(own).view(-1) for kind in kinds if kind for own in classify(known, kind)]
    scores = their_scores(folder, texts)
    return check("classes", ((text, float((own - (other.softmax(-1) if len(other) > 1 else other)).abs().max()) <= LIMIT)
                             for text, own, other in zip(texts, ours, scores, strict=True)))


def their_scores(folder: Path, texts: list[Any]) -> list[Tensor]:
    modules = modules_of(folder)
    if modules is not None and modules.dense is not None:
        from sentence_transformers import CrossEncoder
        model = CrossEncoder(str(folder), device="cpu")
        return [model(model.preprocess([text[0] if text[1] is None else text]))["scores"][0] for text in texts]
    other, model = their_tokenizer(folder), theirs(folder, torch.float32)
    return [model(**other(*[t for t in text if t is not None], return_tensors="pt")).logits[0] for text in texts]
