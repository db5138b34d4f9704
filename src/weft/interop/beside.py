"""What lies beside the weights, so that other libraries read texts and images, and generate, as we do."""
import json
import shutil
from pathlib import Path
from typing import Any

from .. import spec as S
from ..data.image import MEAN, STD, shorter_side
from ..data.members import member
from ..data.tokenizer import Tokenizer
from .modules import files_of
from .parse import parse

VOCABULARY = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt",
              "spiece.model", "source.spm", "target.spm", "tokenizer.model", "chat_template.jinja")
TOKENIZER, READING, GENERATION, IMAGES = "tokenizer.json", "tokenizer_config.json", "generation_config.json", "preprocessor_config.json"
CODE = {"auto_map", "custom_pipelines", "trust_remote_code"}       # keys by which a folder asks to run its own code: never written
NEW_TOKENS = 128                           # as many as weft generate says where nobody asks for another number


def carry(origin: Path, folder: Path, s: S.Model) -> None:
    """The files of an earlier folder that are still true of a model: those of its tokenizer unless it has another, how to generate where it
    generates, how to pool where it has no head."""
    own = (folder / TOKENIZER).exists() and member(origin, TOKENIZER) \
        and (folder / TOKENIZER).read_bytes() != (origin / TOKENIZER).read_bytes()
    found = [*(VOCABULARY if not own else ()), *([GENERATION] if isinstance(s.head, S.Vocabulary) else []),
             IMAGES, *(files_of(origin) if isinstance(s.head, S.Features) else [])]
    for file in found:
        if path := member(origin, file):
            (folder / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / file)
            (folder / file).chmod((folder / file).stat().st_mode & (path.stat().st_mode | 0o600))      # what is private stays so
            if file.endswith("_config.json") and without(CODE, kept := parse(origin, file)) != kept:
                write(folder / file, without(CODE, kept))


def without(keys: set[str], config: Any) -> Any:
    if isinstance(config, dict):
        return {k: without(keys, v) for k, v in config.items() if k not in keys}
    return [without(keys, item) for item in config] if isinstance(config, list) else config


def write(path: Path, plain: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# Text

def special_ids(s: S.Model, known: dict[str, int], start: int | None = None) -> S.Model:
    """The spec with the ids that it leaves open: those of a tokenizer's marks, and what its decoder reads first."""
    own = s.special
    ids = {"pad": known.get("pad"), "begin": known.get("begin"), "end": known.get("end"), "start": start}
    return S.replace(s, special=S.Special(**{name: getattr(own, name) if getattr(own, name) is not None else ids[name] for name in ids}))


def unnamed(folder: Path | None) -> Tokenizer | None:
    """The tokenizer of a folder in which no tokenizer_config.json says how to read it."""
    alone = folder is not None and member(folder, TOKENIZER) and not member(folder, READING)
    return Tokenizer.load(folder / TOKENIZER) if alone and folder is not None else None


def reading(s: S.Model, tokenizer: Tokenizer) -> dict[str, Any]:
    """tokenizer_config.json: the class that takes tokenizer.json as it is, whatever the model's type; marks; what the model takes."""
    names = {mark: tokenizer.inner.id_to_token(i) for mark, i in tokenizer.special.items()}
    roles = {"pad_token": "pad", "unk_token": "unknown", "bos_token": "begin", "eos_token": "end", "mask_token": "mask"}
    if s.decoder is None or isinstance(s.head, S.Classes):
        roles |= {"cls_token": "begin", "sep_token": "end"}
    segments = isinstance(s.source, S.Tokens) and (s.source.segments or 1) > 1
    learned = getattr(s.source, "positions", None)
    length = learned.count if isinstance(learned, S.Learned) else s.context
    generates = s.encoder is None and isinstance(s.head, S.Vocabulary)     # what is added comes after the last token
    return {"tokenizer_class": "PreTrainedTokenizerFast", **{role: names[mark] for role, mark in roles.items() if mark in names},
            **({"model_max_length": length} if length else {}), "clean_up_tokenization_spaces": False,
            "padding_side": "left" if generates else "right", "truncation_side": "left" if generates else "right",
            "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]}


def generation(s: S.Model) -> dict[str, Any]:
    ids = {"bos_token_id": s.special.begin, "eos_token_id": list(s.special.end) if isinstance(s.special.end, tuple) else s.special.end,
           "pad_token_id": s.special.pad, "decoder_start_token_id": s.special.start}
    return {name: i for name, i in ids.items() if i is not None} | {"max_new_tokens": NEW_TOKENS}


# Images

def images(s: S.Patches) -> dict[str, Any]:
    """preprocessor_config.json: what `data.image.centre` and `normalise` do."""
    mean, std = (list(t) if s.channels == 3 else [sum(t) / len(t)] for t in (MEAN, STD))
    return {"image_processor_type": "BitImageProcessor", "do_resize": True, "size": {"shortest_edge": shorter_side(s.image)}, "resample": 3,
            "do_center_crop": True, "crop_size": {"height": s.image, "width": s.image}, "do_rescale": True, "rescale_factor": 1 / 255,
            "do_normalize": True, "image_mean": mean, "image_std": std, "do_convert_rgb": s.channels == 3}


def complete(folder: Path, s: S.Model, ours: bool) -> None:
    """What a folder in Hugging Face's layout lacks; `ours`: a model that comes from none."""
    tokenizer = unnamed(folder)
    if tokenizer is not None:
        write(folder / READING, reading(s, tokenizer))
    if ours and s.decoder is not None and isinstance(s.head, S.Vocabulary) and not (folder / GENERATION).exists():
        write(folder / GENERATION, generation(s))
    if ours and isinstance(s.source, S.Patches) and s.source.channels in (1, 3) and not (folder / IMAGES).exists():
        write(folder / IMAGES, images(s.source))
