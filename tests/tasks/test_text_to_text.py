"""Text-to-text: inputs of encoder and decoder, and the loss compared with transformers' T5 and BART
on the same batch.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import recipe as R
from weft.spec import Spec, SpecialTokens, replace
from weft.tasks.base import LengthLimitedSamples

from .cases import SENTENCES, TEXT, bart, t5, transformer
from .made import SPECIAL, VOCABULARY, Given, build_pair, meta, pairs, texts
from .tuning import mean, ready, twins

PAIR = LengthLimitedSamples(
    Given(
        [
            {
                "source": np.array([10, 11, 12, 13], np.uint16),
                "target": np.array([20, 21, 22, 23], np.uint16),
            }
        ]
    ),
    4,
)
BEGIN = SPECIAL["bos"]
END = SPECIAL["eos"]
PAD = SPECIAL["pad"]
TWINS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": (
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 32,
            "num_layers": 2,
            "num_heads": 2,
            "decoder_start_token_id": PAD,
            "pad_token_id": PAD,
            "eos_token_id": END,
        },
    ),
    "bart": (
        "BartForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": 64,
            "decoder_start_token_id": END,
            "pad_token_id": PAD,
            "bos_token_id": BEGIN,
            "eos_token_id": END,
            "forced_eos_token_id": None,
        },
    ),
}


def test_t5_appends_end_tokens_and_starts_decoding_with_padding() -> None:
    corruption, _ = build_pair(R.TextToText(), t5(), meta(R.SourceTargetPairs()))
    row = corruption(PAIR, 0, np.random.default_rng(0))
    # cut at 4
    assert {name: value.tolist() for name, value in row.items()} == {
        "tokens": [10, 11, 12, END],
        "target": [PAD, 20, 21, 22],
        "labels": [20, 21, 22, END],
    }


def test_bart_puts_both_texts_between_marks_and_its_decoder_starts_from_the_end_token() -> None:
    corruption, _ = build_pair(
        R.TextToText(input_format="bart"), bart(), meta(R.SourceTargetPairs())
    )
    row = corruption(PAIR, 0, np.random.default_rng(0))
    assert {name: value.tolist() for name, value in row.items()} == {
        "tokens": [BEGIN, 10, 11, END],
        "target": [END, BEGIN, 20, 21],
        "labels": [BEGIN, 20, 21, END],
    }


@pytest.mark.parametrize("name", TWINS)
def test_the_loss_is_transformers_which_shifts_the_labels_itself(name: Any, tmp_path: Path) -> None:
    kind, config = TWINS[name]
    other, model = twins(kind, tmp_path, **config)
    corruption, objective, given = ready(
        R.TextToText(input_format=name), model, meta(R.SourceTargetPairs()), pairs(9, 16, 14)
    )
    assert "tokens_attention_mask" in given
    theirs = other(
        input_ids=given["tokens"],
        attention_mask=given["tokens_attention_mask"].long(),
        labels=given["labels"],
    ).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5
    assert theirs > 1


def test_a_template_writes_a_source_from_columns_whatever_their_names_and_a_class_as_its_word() -> (
    None
):
    row = R.TemplatedPairs(
        template="mrpc #1: {#1 String} b.c: {b.c}",
        target="label",
        labels=("0", "1"),
        label_texts=("no", "yes"),
    )
    fields = {"#1 String": "a {x}", "b.c": "two", "label": 1}
    assert row.template_columns == ("#1 String", "b.c")
    assert row.source_text(fields) == "mrpc #1: a {x} b.c: two"
    assert row.target_text(fields) == "yes"
    assert R.TemplatedPairs(target="t").target_text({"t": "any text"}) == "any text"


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("contains no column; put one in", {"template": "translate: "}),
        ("give one per class, 2", {"labels": ("a", "b"), "label_texts": ("c",)}),
        ("has duplicates", {"labels": ("a", "b"), "label_texts": ("c", "c")}),
    ],
)
def test_a_template_that_cannot_be_read_is_refused(said: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=said):
        R.TemplatedPairs(**given)


@pytest.mark.parametrize(
    ("task", "spec", "rows"),
    [
        (R.TextToText(), t5(), R.SourceTargetPairs()),
        (R.Translation(), transformer(), R.SourceTargetPairs()),
        (R.Denoising(), bart(), SENTENCES),
        (R.SpanCorruption(), t5(), TEXT),
    ],
)
def test_a_model_that_names_its_start_token_reads_that_first(
    task: R.Task, spec: Spec, rows: R.RowSchema
) -> None:
    spec = replace(spec, special_tokens=SpecialTokens(decoder_start=7))
    corruption, _ = build_pair(task, spec, meta(rows))
    samples = PAIR if isinstance(rows, R.SourceTargetPairs) else texts(1, 20, 22)
    assert corruption(samples, 0, np.random.default_rng(0))["target"][0] == 7
