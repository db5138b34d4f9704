"""Files next to the weights: tokenizer, image processor, generation and pooling configs for other
libraries.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import tokenizers

from ... import recipe as R
from ... import spec as S
from ...data.tokenizing.tokenizer import Tokenizer
from ...support.folder_files import find_file
from ..json_files import read_json_object
from .image_processor import IMAGES, image_processor_config
from .sentence_transformers import module_files

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "source.spm",
    "target.spm",
    "tokenizer.model",
    "chat_template.jinja",
)
CHAT_TEMPLATE = "chat_template.jinja"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION = "generation_config.json"
# keys that make libraries run code from the directory: never written
CODE_KEYS = {
    "auto_map",
    "custom_pipelines",
    "trust_remote_code",
}
NEW_TOKENS = 128  # the default of weft generate


def copy_companion_files(origin: Path, folder: Path, spec: S.Spec) -> None:
    """Copy the files of the original directory that still apply: tokenizer files unless the model
    has another tokenizer, the generation config if it generates, pooling modules if it has no head.
    """
    has_own_tokenizer = (
        (folder / TOKENIZER).exists()
        and find_file(origin, TOKENIZER)
        and (folder / TOKENIZER).read_bytes() != (origin / TOKENIZER).read_bytes()
    )
    files = [
        *(TOKENIZER_FILES if not has_own_tokenizer else ()),
        *([GENERATION] if isinstance(spec.head, S.LMHead) else []),
        IMAGES,
        *(module_files(origin) if isinstance(spec.head, S.NoHead) else []),
    ]
    for file in files:
        if path := find_file(origin, file):
            (folder / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / file)
            # keep the file permissions
            (folder / file).chmod((folder / file).stat().st_mode & (path.stat().st_mode | 0o600))
            if (
                file.endswith("_config.json")
                and without_keys(CODE_KEYS, config := read_json_object(origin, file)) != config
            ):
                write_json(folder / file, without_keys(CODE_KEYS, config))


def without_keys(keys: set[str], config: Any) -> Any:
    if isinstance(config, dict):
        return {k: without_keys(keys, v) for k, v in config.items() if k not in keys}
    return [without_keys(keys, item) for item in config] if isinstance(config, list) else config


def write_json(path: Path, plain: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# Text


def with_special_ids(
    spec: S.Spec, tokenizer_ids: dict[str, int], start: int | None = None
) -> S.Spec:
    """Return the spec with missing ids filled in: the tokenizer's special tokens and the decoder
    start.
    """
    special_tokens = spec.special_tokens
    ids = {
        "pad": tokenizer_ids.get("pad"),
        "bos": tokenizer_ids.get("bos"),
        "eos": tokenizer_ids.get("eos"),
        "decoder_start": start,
    }
    return S.replace(
        spec,
        special_tokens=S.SpecialTokens(
            **{
                name: getattr(special_tokens, name)
                if getattr(special_tokens, name) is not None
                else ids[name]
                for name in ids
            }
        ),
    )


def with_end_of_turn(spec: S.Spec, template: R.ChatTemplate, tokenizer: str) -> S.Spec:
    """Return the spec with the template's end-of-turn token as an end token, if it is a single
    token.
    """
    end = tokenizers.Tokenizer.from_str(tokenizer).token_to_id(template.end)
    if end is None:
        return spec
    return S.replace(spec, special_tokens=S.replace(spec.special_tokens, eos=end))


def tokenizer_without_config(folder: Path | None) -> Tokenizer | None:
    """Return the tokenizer of a directory without tokenizer_config.json."""
    alone = (
        folder is not None
        and find_file(folder, TOKENIZER)
        and not find_file(folder, TOKENIZER_CONFIG)
    )
    return Tokenizer.load(folder / TOKENIZER) if alone and folder is not None else None


def tokenizer_config(spec: S.Spec, tokenizer: Tokenizer) -> dict[str, Any]:
    """tokenizer_config.json: a class that reads tokenizer.json unchanged for any model type, the
    special tokens, and the model's inputs.
    """
    names = {mark: tokenizer.inner.id_to_token(i) for mark, i in tokenizer.special.items()}
    roles = {
        "pad_token": "pad",
        "unk_token": "unk",
        "bos_token": "bos",
        "eos_token": "eos",
        "mask_token": "mask",
    }
    if spec.decoder is None or isinstance(spec.head, S.ClassifierHead):
        roles |= {"cls_token": "bos", "sep_token": "eos"}
    segments = isinstance(spec.source, S.Tokens) and (spec.source.token_types or 1) > 1
    learned = getattr(spec.source, "positions", None)
    length = learned.count if isinstance(learned, S.LearnedPositions) else spec.context_length
    # added tokens come after the last token
    generates = spec.encoder is None and isinstance(spec.head, S.LMHead)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{role: names[mark] for role, mark in roles.items() if mark in names},
        **({"model_max_length": length} if length else {}),
        "clean_up_tokenization_spaces": False,
        "padding_side": "left" if generates else "right",
        "truncation_side": "left" if generates else "right",
        "model_input_names": [
            "input_ids",
            *(["token_type_ids"] if segments else []),
            "attention_mask",
        ],
    }


def generation_config(spec: S.Spec) -> dict[str, Any]:
    ids = {
        "bos_token_id": spec.special_tokens.bos,
        "eos_token_id": list(spec.special_tokens.eos)
        if isinstance(spec.special_tokens.eos, tuple)
        else spec.special_tokens.eos,
        "pad_token_id": spec.special_tokens.pad,
        "decoder_start_token_id": spec.special_tokens.decoder_start,
    }
    return {name: i for name, i in ids.items() if i is not None} | {"max_new_tokens": NEW_TOKENS}


def add_missing_files(folder: Path, spec: S.Spec, ours: bool) -> None:
    """Write missing files of a directory in Hugging Face's layout; `ours`: the model was not loaded
    from one.
    """
    tokenizer = tokenizer_without_config(folder)
    if tokenizer is not None:
        write_json(folder / TOKENIZER_CONFIG, tokenizer_config(spec, tokenizer))
    if (
        ours
        and spec.decoder is not None
        and isinstance(spec.head, S.LMHead)
        and not (folder / GENERATION).exists()
    ):
        write_json(folder / GENERATION, generation_config(spec))
    if (
        ours
        and isinstance(spec.source, S.Patches)
        and spec.source.channels in (1, 3)
        and not (folder / IMAGES).exists()
    ):
        write_json(folder / IMAGES, image_processor_config(spec.source))
