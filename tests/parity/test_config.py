"""config.json is read under the names, and with the defaults, that transformers has; nothing in it
is overlooked.
"""

import json
import re
from contextlib import suppress
from typing import Any

import pytest
import transformers as hf

from weft import spec as S
from weft.families import family
from weft.families.base import SPECIAL_TOKEN_FIELDS, ConfigField, Family, get_nested, set_nested

from .cases import CASES, MAIN, ORIGINAL, Case, folder
from .trips import untied

FILES = {name: c for name, c in MAIN.items() if c is not ORIGINAL}
FIELDS = [(c, f) for c in FILES.values() for f in family(c.family).fields if f.keys]
fields = pytest.mark.parametrize(
    ("c", "f"), FIELDS, ids=[f"{c.family}-{f.argument}" for c, f in FIELDS]
)
# what transformers writes and Weft need not read to say the same, and why
INERT = {
    r"architectures|model_type|dtype|transformers_version|id2label|label2id": "read apart from the "
    "table",
    r"\w*dropout|\w*layerdrop|router_jitter_noise": "acts in training only",
    r"init\w*": "acts on the initial weights only",
    r"\w+_(cost|coefficient|coef)|auxiliary_loss|focal_alpha|mask_ratio|norm_pix_loss": (
        "an objective's"
    ),
    r"sparse_\w+|output_router_logits": "an objective's",
    r"use_cache|is_encoder_decoder|deterministic_flash_attn|reorder_and_upcast_attn": (
        "how, not what"
    ),
    r"slow_but_exact|pretraining_tp": "how, not what",
    r"(cls|sep|forced_eos)_token_id": "an id for data or decoding",
    r"summary_\w+": "of heads that Weft does not read",
    r"dense_act_fn|is_gated_act|hidden_size|num_layers": "follows from keys that are read",
    r"out_features|out_indices|stage_names": "follows from keys that are read",
    r"encoder_stride|pooler_output_size|num_channels": "of a head that Weft does not read, or "
    "shown by the tensors' shapes",
    r"tie_word_embeddings": "where the tensors decide, or a second table is refused unless it is "
    "the same",
    r"max_window_layers|layer_types|sliding_window": "of the windows that `use_sliding_window` "
    "turns off",
    r"apply_layernorm|reshape_hidden_states": "of a backbone, which Weft does not read",
    r"is_decoder": "a stack's, read by no class of these families",
}
# what a file must state: absent means a number to transformers, null means none
STATED = {
    "mistral": ("num_key_value_heads", "sliding_window"),
    "mixtral": ("num_key_value_heads",),
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.5,
    "high_freq_factor": 5.0,
    "original_max_position_embeddings": 32,
}
# the names that published files hold, from before transformers 5
OLDER = [
    ("llama", {"rope_theta": 700.0}),
    ("llama", {"rope_theta": 700.0, "rope_scaling": None}),
    ("llama", {"rope_scaling": LLAMA3}),
    ("mistral", {"rope_theta": 700.0}),
    ("mixtral", {"rope_theta": 700.0}),
    ("gemma2", {"rope_theta": 700.0}),
    ("qwen3", {"rope_theta": 700.0}),
    ("olmo2", {"rope_theta": 700.0}),
    ("qwen3", {"rope_scaling": LLAMA3}),
    ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 700}),
    ("modernbert", {"global_rope_theta": 700.0, "local_rope_theta": 60.0}),
    ("modernbert", {"global_attn_every_n_layers": 2}),
    ("bloom", {"n_embed": 32, "num_attention_heads": 4}),
    ("t5", {"tie_word_embeddings": False}),
    ("gpt2", {"n_ctx": 16}),
    ("bart", {"normalize_before": False, "add_final_layer_norm": False}),
]
NEWER = {"bloom": ("hidden_size", "n_head"), "t5": ("scale_decoder_outputs",)}


def config(c: Case) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(c) / "config.json").read_text())
    return found


def keys(f: Family) -> set[str]:
    """The outermost names of all that a family reads."""
    read = {
        key for field in (*f.fields, *SPECIAL_TOKEN_FIELDS) for key in (*field.keys, *field.legacy)
    }
    return {key.split(".")[0] for key in (*read, *f.supported_values, f.context_length_key)}


@fields
def test_a_key_that_is_read_stands_in_the_file_that_transformers_writes(
    c: Case, f: ConfigField
) -> None:
    *outer, last = f.keys[0].split(".")
    assert last in (get_nested(config(c), ".".join(outer)) if outer else config(c))


@pytest.mark.parametrize("c", FILES.values(), ids=FILES)
def test_a_key_that_transformers_writes_is_read_or_has_a_reason_not_to_be(c: Case) -> None:
    assert not [
        key
        for key in config(c).keys() - keys(family(c.family))
        if not any(re.fullmatch(row, key) for row in INERT)
    ]


@pytest.mark.parametrize("row", INERT)
def test_every_reason_is_needed(row: str) -> None:
    assert any(
        re.fullmatch(row, key)
        for c in FILES.values()
        for key in config(c).keys() - keys(family(c.family))
    )


def another(found: Any) -> Any:
    """Another value that a config may hold."""
    if isinstance(found, bool):
        return not found
    if isinstance(found, int | float):
        return 2 * found or 0.5
    if isinstance(found, list):
        return [*found[1:], found[0]] if isinstance(found[0], str) else [2 * n for n in found]
    if isinstance(found, dict):
        return found | {"rope_type": "default" if found["rope_type"] == "llama3" else "yarn"}
    return (
        {"sine": "learned", "relu": "gated-gelu"}.get(found, "relu")
        if isinstance(found, str)
        else 24
    )


@fields
def test_another_value_of_a_key_gives_another_spec_or_is_refused(c: Case, f: ConfigField) -> None:
    changed = config(c)
    set_nested(changed, f.keys[0], another(get_nested(changed, f.keys[0])))
    with suppress(ValueError):
        assert family(c.family).from_config(changed) != family(c.family).from_config(config(c))


@pytest.mark.parametrize("c", FILES.values(), ids=FILES)
def test_what_a_file_leaves_out_is_what_transformers_takes_for_it(c: Case) -> None:
    stated = {"architectures": [c.kind]} | dict.fromkeys(STATED.get(c.family, ()))
    whole = getattr(hf, c.config)().to_dict()
    said, unsaid = (
        S.replace(
            family(c.family).from_config(given | stated),
            special_tokens=S.SpecialTokens(),
            context_length=None,
        )
        for given in (whole, {})
    )
    assert said == unsaid


@pytest.mark.parametrize(("name", "old"), OLDER)
def test_the_names_of_older_files_mean_what_transformers_makes_of_them(
    name: str, old: dict[str, Any]
) -> None:
    c = MAIN[name]
    f = family(name)
    older = {
        key: value
        for key, value in config(c).items()
        if key not in ("rope_parameters", "layer_types", *NEWER.get(name, ()))
    } | old
    newer = getattr(hf, c.config).from_dict(dict(older)).to_dict() | {"architectures": [c.kind]}
    assert untied(f.from_config(older)) == untied(f.from_config(newer))


def test_robertas_positions_start_after_the_padding_id_whatever_it_is() -> None:
    c = MAIN["roberta"]
    f = family("roberta")
    first = f.from_config(config(c) | {"pad_token_id": 0})
    usual = f.from_config(config(c))
    assert (first.source.positions, usual.source.positions) == (
        S.LearnedPositions(count=15, offset=1),
        S.LearnedPositions(count=14, offset=2),
    )
    assert f.to_config(first)["pad_token_id"] == 0
    with pytest.raises(ValueError, match="need the padding id 1"):
        f.to_config(S.replace(usual, special_tokens=S.SpecialTokens(pad=0)))


@pytest.mark.parametrize("c", CASES.values(), ids=lambda c: c.name)
def test_the_config_of_a_spec_is_read_again_as_that_spec(c: Case) -> None:
    f = family(c.family)
    spec = f.from_config(config(c) | {"architectures": [c.kind]})
    assert f.from_config(json.loads(json.dumps(f.to_config(spec)))) == spec


def test_router_loss_weights_are_read_and_written_where_keys_exist() -> None:
    small = {"depth": 1, "width": 16, "heads": 2, "kv_heads": 1, "hidden": 8, "vocab_size": 32}
    mixtral = family("mixtral")
    written = mixtral.to_config(mixtral(**small, load_balance_weight=0.03, router_z_weight=0.5))
    assert written["router_aux_loss_coef"] == 0.03
    again = mixtral.from_config(written).decoder.blocks[0].feedforward.inner
    assert (again.load_balance_weight, again.router_z_weight) == (0.03, 0.0)
    assert mixtral(**small).decoder.blocks[0].feedforward.inner.load_balance_weight == 0.02
