"""The same weights give the same numbers here and there, in both directions."""
import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

import weft
from weft import spec as S
from weft.families import NAMES, family
from weft.interop import verify
from weft.interop.convert import pattern, strip
from weft.interop.folder import describe
from weft.layers.position import Buckets
from weft.weights import Alias, Skip

from .cases import CASES, MAIN, ORIGINAL, Case, answers, differences, example, folder, ours, saved, theirs

FP32, FP64 = 1e-5, 1e-9
ROUGH = {                                  # where fp64 cannot agree to 1e-9, to what it agrees, and why
    "bloom": (1e-8, "transformers writes √(2/π) in BLOOM's GELU with eight digits"),
    "marian": (1e-6, "transformers reads its sinusoids from an fp32 table"),
}
SINUSOIDS = {f"{stack}.embed_positions.weight" for stack in ("encoder", "decoder")}      # MarianModel works them out, but says "missing"
ABSOLUTE = {"bart", "marian"}              # transformers counts their positions by slot, and takes no others
FIRST = ("BertModel", "RobertaModel", "BertForSequenceClassification", "BertForMultipleChoice",          # transformers pools slot 0, padded or not
         "RobertaForSequenceClassification", "ElectraForSequenceClassification")
AUTO = {"ForMaskedLM": "MaskedLM", "ForPreTraining": "PreTraining", "ForSequenceClassification": "SequenceClassification",
        "ForTokenClassification": "TokenClassification", "ForQuestionAnswering": "QuestionAnswering", "ForMultipleChoice": "MultipleChoice",
        "ForCausalLM": "CausalLM", "LMHeadModel": "CausalLM", "ForConditionalGeneration": "Seq2SeqLM", "MTModel": "Seq2SeqLM",
        "ForImageClassification": "ImageClassification", "WithTeacher": "ImageClassification", "ForObjectDetection": "ObjectDetection"}

every = pytest.mark.parametrize("c", CASES.values(), ids=lambda c: c.name)
both = pytest.mark.parametrize("c", [ORIGINAL, *CASES.values()], ids=lambda c: c.name)


def outputs(s: S.Model) -> set[str]:
    """What must have been compared."""
    found = {S.Spans: {"start_logits", "end_logits"}, S.Boxes: {"logits", "pred_boxes"}, S.Features: {"last_hidden_state"}}.get(
        type(s.head), {"logits"})
    pooled = {"pooler_output"} if isinstance(s.head, S.Features) and s.head.transform else set()
    pair = {"encoder_last_hidden_state", "last_hidden_state"} if s.encoder and s.decoder else set()
    return found | pooled | pair | ({"last_hidden_state"} if isinstance(s.source, S.Tokens) else set())


def test_every_family_has_a_case() -> None:
    assert set(MAIN) == set(NAMES)


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
def test_the_answers_are_alive_and_of_a_size_at_which_the_tolerance_means_something(c: Case) -> None:
    said = answers(c)
    assert all(0.02 < said[name].std() and said[name].abs().max() < 20 for name in outputs(ours(c).spec)), {n: t.std() for n, t in said.items()}


@every
def test_the_folder_that_weft_saves_opens_there_without_a_missing_or_unexpected_key(c: Case) -> None:
    opens_alike(c, getattr(hf, kind(c)))


def kind(c: Case) -> str:
    """Without its next-sentence head, which the objective owns, BERT's pre-training model is a masked one."""
    return "BertForMaskedLM" if c.kind == "BertForPreTraining" else c.kind


def automatic(c: Case) -> Any:
    """The Auto… class that makes this one, or None."""
    name = next((f"AutoModelFor{auto}" for ending, auto in AUTO.items() if kind(c).endswith(ending)), "AutoModel")
    made = getattr(hf, name)._model_mapping._model_mapping.get(getattr(hf, c.config).model_type, ())
    return getattr(hf, name) if kind(c) in ((made,) if isinstance(made, str) else made) else None


@pytest.mark.parametrize("c", [c for c in CASES.values() if automatic(c)], ids=lambda c: c.name)
def test_the_automatic_classes_open_it_too(c: Case) -> None:
    opens_alike(c, automatic(c))


def test_only_deits_teacher_has_no_automatic_class() -> None:
    assert {c.kind for c in CASES.values() if not automatic(c)} == {"DeiTForImageClassificationWithTeacher"}


def opens_alike(c: Case, opener: Any) -> None:
    model, report = opener.from_pretrained(saved(c), output_loading_info=True, attn_implementation="eager", dtype=torch.float32)
    assert type(model).__name__ == kind(c)
    assert not {*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]} - SINUSOIDS, report
    with torch.no_grad():
        again = verify.run_theirs(model.eval(), ours(c).spec, example(c))
    assert all(torch.equal(again[name], answers(c)[name]) for name in outputs(ours(c).spec))


@every
def test_load_and_save_give_the_same_bytes_and_the_same_spec(c: Case) -> None:
    before, after = tensors(folder(c)), tensors(saved(c))
    assert all(unsaid(c, name) for name in set(before) - set(after))
    assert all(before[name].dtype == t.dtype and before[name].numpy().tobytes() == t.numpy().tobytes() for name, t in after.items())
    assert describe(saved(c))[1] == ours(c).spec


def tensors(where: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = load_file(where / "model.safetensors")
    return found


def unsaid(c: Case, name: str) -> bool:
    """Whether a table says that a foreign tensor is not ours, or another's second name."""
    f = family(c.family)
    rows = [row.theirs for row in (*f.table, *strip(f.table, f.prefix)) if isinstance(row, Skip | Alias)]
    return any(pattern(row).match(name) for row in rows) or (c.kind == "BertForPreTraining" and name.startswith("bert.pooler"))


@every
def test_the_family_itself_reads_the_config_as_load_does(c: Case) -> None:
    read = family(c.family).read(hf.AutoConfig.from_pretrained(folder(c)).to_dict() | {"architectures": [c.kind]})
    tied = getattr(ours(c).spec.head, "tied", None)
    assert (read if tied is None else S.replace(read, head=S.replace(read.head, tied=tied))) == ours(c).spec


def left_padded(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The second row's padding moved to its front."""
    pad = int((~batch["keep"][1]).sum())
    moved = {name: torch.stack((t[0], t[1].roll(pad))) for name, t in batch.items() if name in ("ids", "keep", "segments")}
    return batch | moved


FREE = [c for c in CASES.values() if "vocab_size" in c.fields and c.family not in ABSOLUTE and not c.kind.endswith(FIRST)]


@pytest.mark.parametrize("c", FREE, ids=lambda c: c.name)
def test_padding_on_the_left_needs_only_keep_here_where_the_other_side_is_told_positions(c: Case) -> None:
    batch, other = left_padded(example(c)), theirs(c)
    if "position_ids" in inspect.signature(other.forward).parameters and c.family != "roberta":      # which counts by itself
        other = partial(other, position_ids=(batch["keep"].long().cumsum(1) - 1).clamp(min=0))
    found = verify.compare(ours(c), other, batch)
    assert set(found) >= outputs(ours(c).spec)
    assert max(found.values()) <= FP32, found


@pytest.mark.parametrize("sided", [True, False])
@pytest.mark.parametrize(("count", "distance"), [(32, 128), (8, 9), (64, 20)])
def test_t5_puts_every_distance_into_the_same_bucket(count: int, distance: int, sided: bool) -> None:
    offset = torch.arange(-3000, 3001)
    mine = Buckets(S.Buckets(count=count, distance=distance, sided=sided), heads=1).bucket(offset)
    assert torch.equal(mine, T5Attention._relative_position_bucket(offset, sided, count, distance))


def test_maes_fixed_tables_are_worked_out_as_published() -> None:
    built = weft.build(ours(MAIN["mae"]).spec).state_dict()
    for name in ("source.positions.weight", "head.positions.weight"):
        table = build_2d_sinusoidal_position_embedding(4, 4, built[name].shape[1], cls_token=True)
        column_first = torch.cat(table.chunk(2, -1)[::-1], -1)
        assert (built[name] - column_first).abs().max() <= 1e-6
