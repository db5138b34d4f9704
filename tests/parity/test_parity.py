"""The same weights give the same outputs in Weft and transformers, in both directions."""

import inspect
from functools import partial

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

import weft
from weft import spec as S
from weft.families import family, family_names
from weft.interop.huggingface import verify
from weft.nn.layers.positions import RelativeBiasLayer

from .cases import (
    CASES,
    FP32,
    FP64,
    MAIN,
    ORIGINAL,
    ROUGH,
    Case,
    answers,
    differences,
    example,
    folder,
    ours,
    saved,
    scratch,
    theirs,
)
from .trips import byte_problems, opening_problems, outputs, untied

# transformers counts their positions by slot, and takes no others
ABSOLUTE = {
    "bart",
    "marian",
    "pegasus",
}
FIRST = (
    "BertModel",
    "RobertaModel",
    "BertForSequenceClassification",
    "BertForMultipleChoice",  # it pools slot 0, padded or not
    "RobertaForSequenceClassification",
    "ElectraForSequenceClassification",
)
FREE = [
    c
    for c in CASES.values()
    if "vocab_size" in c.fields and c.family not in ABSOLUTE and not c.kind.endswith(FIRST)
]

every = pytest.mark.parametrize("c", CASES.values(), ids=lambda c: c.name)
both = pytest.mark.parametrize("c", [ORIGINAL, *CASES.values()], ids=lambda c: c.name)


def test_every_family_has_a_case() -> None:
    """But CCT and PaLM, which transformers does not have: test_compact.py and test_palm.py compare
    them with their papers.
    """
    assert {*MAIN, "cct", "palm"} == set(family_names())


@both
def test_every_output_is_the_same_in_single_precision_with_padding(c: Case) -> None:
    found = differences(c)
    assert set(found) >= outputs(ours(c).spec)
    assert max(found.values()) <= FP32, found


@both
def test_every_output_is_the_same_in_double_precision(c: Case) -> None:
    found = differences(c, dtype=torch.float64)
    assert max(found.values()) <= ROUGH.get(c.family, (FP64, ""))[0], found


@both
def test_the_answers_are_alive_and_of_a_size_at_which_the_tolerance_means_something(
    c: Case,
) -> None:
    for name in outputs(ours(c).spec):
        assert answers(c)[name].std() > 0.02, name
        assert answers(c)[name].abs().max() < 20, name


@every
def test_the_folder_that_weft_saves_opens_there_without_a_missing_or_unexpected_key(
    c: Case,
) -> None:
    assert not opening_problems(c, saved(c))


@every
def test_the_automatic_classes_open_a_model_that_never_saw_a_file(c: Case) -> None:
    assert not opening_problems(c, scratch(c), automatic=True)


@every
def test_load_and_save_give_the_same_bytes_and_the_same_spec(c: Case) -> None:
    assert not byte_problems(c)


@every
def test_the_family_itself_reads_the_config_as_load_does(c: Case) -> None:
    read = family(c.family).from_config(
        hf.AutoConfig.from_pretrained(folder(c)).to_dict() | {"architectures": [c.kind]}
    )
    assert untied(read) == untied(ours(c).spec)


def left_padded(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The second row's padding moved to its front."""
    pad = int((~batch["attention_mask"][1]).sum())
    moved = {
        name: torch.stack((t[0], t[1].roll(pad)))
        for name, t in batch.items()
        if name in ("ids", "attention_mask", "segments")
    }
    return batch | moved


@pytest.mark.parametrize("c", FREE, ids=lambda c: c.name)
def test_padding_on_the_left_needs_only_the_mask_here_where_the_other_side_is_told_positions(
    c: Case,
) -> None:
    batch = left_padded(example(c))
    other = theirs(c)
    # which counts by itself
    if "position_ids" in inspect.signature(other.forward).parameters and c.family != "roberta":
        position_ids = (batch["attention_mask"].long().cumsum(1) - 1).clamp(min=0)
        other = partial(other, position_ids=position_ids)
    found = verify.compare(ours(c), other, batch)
    assert set(found) >= outputs(ours(c).spec)
    assert max(found.values()) <= FP32, found


@pytest.mark.parametrize("sided", [True, False])
@pytest.mark.parametrize(("count", "distance"), [(32, 128), (8, 9), (64, 20)])
def test_t5_puts_every_distance_into_the_same_bucket(
    count: int, distance: int, sided: bool
) -> None:
    offset = torch.arange(-3000, 3001)
    mine = RelativeBiasLayer(
        S.RelativeBias(buckets=count, max_distance=distance, bidirectional=sided), heads=1
    ).bucket(offset)
    assert torch.equal(mine, T5Attention._relative_position_bucket(offset, sided, count, distance))


def test_maes_fixed_tables_are_worked_out_as_published() -> None:
    built = weft.build(ours(MAIN["mae"]).spec).state_dict()
    for name in ("source.positions.weight", "head.positions.weight"):
        table = build_2d_sinusoidal_position_embedding(4, 4, built[name].shape[1], cls_token=True)
        column_first = torch.cat(table.chunk(2, -1)[::-1], -1)
        assert (built[name] - column_first).abs().max() <= 1e-6
