"""Round trips: import and export give the same bytes, and transformers opens the result."""

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file

from weft import spec as S
from weft.families import family
from weft.families.weights import SkippedWeight, WeightAlias
from weft.interop.huggingface import verify
from weft.interop.huggingface.convert import name_pattern, without_prefix
from weft.interop.huggingface.describe import read_folder
from weft.interop.tensor_files import WEIGHTS

from .cases import Case, answers, example, folder, ours, saved

AUTO = {
    "ForMaskedLM": "MaskedLM",
    "ForPreTraining": "PreTraining",
    "ForSequenceClassification": "SequenceClassification",
    "ForTokenClassification": "TokenClassification",
    "ForQuestionAnswering": "QuestionAnswering",
    "ForMultipleChoice": "MultipleChoice",
    "ForCausalLM": "CausalLM",
    "LMHeadModel": "CausalLM",
    "ForConditionalGeneration": "Seq2SeqLM",
    "MTModel": "Seq2SeqLM",
    "ForImageClassification": "ImageClassification",
    "WithTeacher": "ImageClassification",
    "ForObjectDetection": "ObjectDetection",
}
WORKED_OUT = {
    f"{prefix}{stack}.embed_positions.weight"  # Marian and Pegasus make them, yet call them missing
    for prefix in ("", "model.")
    for stack in ("encoder", "decoder")
}


def outputs(s: S.Spec) -> set[str]:
    """What must have been compared."""
    found = {
        S.SpanHead: {"start_logits", "end_logits"},
        S.DetectionHead: {"logits", "pred_boxes"},
        S.NoHead: {"last_hidden_state"},
    }.get(type(s.head), {"logits"})
    pooled = {"pooler_output"} if isinstance(s.head, S.NoHead) and s.head.transform else set()
    pair = {"encoder_last_hidden_state", "last_hidden_state"} if s.encoder and s.decoder else set()
    return (
        found | pooled | pair | ({"last_hidden_state"} if isinstance(s.source, S.Tokens) else set())
    )


def untied(s: S.Spec) -> S.Spec:
    """All but whether a head is tied, which not the config but the tensors decide."""
    return S.replace(s, head=S.replace(s.head, tied=False)) if isinstance(s.head, S.LMHead) else s


def kind(c: Case) -> str:
    """Without its next-sentence head, which the objective owns, BERT's pre-training model is a
    masked one.
    """
    return "BertForMaskedLM" if c.kind == "BertForPreTraining" else c.kind


def opener(c: Case, automatic: bool) -> Any:
    if not automatic:
        return getattr(hf, kind(c))
    found = next((auto for ending, auto in AUTO.items() if kind(c).endswith(ending)), None)
    return getattr(hf, f"AutoModelFor{found}" if found else "AutoModel")


def opening_problems(c: Case, where: Path, automatic: bool = False) -> list[str]:
    """What the other side says against a folder that Weft saved."""
    model, report = opener(c, automatic).from_pretrained(
        where, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    said = {
        f"{what}: {key}"
        for what in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for key in report[what]
        if key not in WORKED_OUT
    }
    if type(model).__name__ != kind(c):
        said.add(f"opened as {type(model).__name__}")
    with torch.no_grad():
        again = verify.run_theirs(model.eval(), ours(c).spec, example(c))
    return [
        *said,
        *(
            f"{name} differs"
            for name in outputs(ours(c).spec)
            if not torch.equal(again[name], answers(c)[name])
        ),
    ]


def byte_problems(c: Case) -> list[str]:
    """What load and save changed, beside the tensors that a table skips with a reason."""
    before = load_file(folder(c) / WEIGHTS)
    after = load_file(saved(c) / WEIGHTS)
    lost = [f"{name} is lost" for name in before.keys() - after.keys() if not skipped(c, name)]
    differ = [
        f"{name} differs"
        for name, t in after.items()
        if name not in before
        or before[name].dtype != t.dtype
        or before[name].numpy().tobytes() != t.numpy().tobytes()
    ]
    return (
        lost + differ + ([] if read_folder(saved(c))[1] == ours(c).spec else ["the spec differs"])
    )


def skipped(c: Case, name: str) -> bool:
    f = family(c.family)
    rows = [
        row.theirs
        for row in (*f.table, *without_prefix(f.table, f.prefix))
        if isinstance(row, SkippedWeight | WeightAlias)
    ]
    return any(name_pattern(row).match(name) for row in rows) or (
        c.kind != kind(c) and name.startswith("bert.pooler")
    )
