"""Twenty steps of fine-tuning are those of transformers' model, schedule and habits on the same
batches: loss and weights.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from torch.testing import assert_close
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    get_linear_schedule_with_warmup,
)

import weft
from tests import whole_runs
from weft import recipe as R
from weft import spec as S
from weft.data.preparing.prepare import prepare
from weft.interop.loading import load
from weft.interop.saving import save
from weft.runs import run

from ..commands import tuned_data as made

# no warm-up: theirs begins at a rate of nothing, ours one step further
STEPS = 20
RATE = 3e-3
DECAY = 0.01
CLIP = 0.2


def classes(folder: Path) -> dict[str, Any]:
    return {"model": made.bert(), "task": R.Classification(), "data": made.data(folder)}


def tags(folder: Path) -> dict[str, Any]:
    """Of every word, whether it is the loom's."""
    labels = ("O", "B-LOOM")
    own = {"loom", "warp", "weft", "shuttle"}
    rows = [
        {"words": s.split(), "tags": [labels[w in own] for w in s.split()]}
        for s in made.sentences(60, 0)
    ]
    (folder / "tagged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = R.Data(
        rows=R.TaggedWords(labels=labels),
        train=R.Source(paths=(str(folder / "tagged.jsonl"),)),
        tokenizer=R.ByteTokenizer(),
        prepared_folder=str(folder / "tags"),
    )
    prepare(data)
    return {
        "model": made.bert(S.TokenClassifierHead(num_labels=2, labels=labels)),
        "task": R.TokenClassification(),
        "data": data,
    }


def texts(style: Any) -> Callable[[Path], dict[str, Any]]:
    """Whether the loom is in a sentence, decoded as a word by the whole encoder-decoder."""
    shape: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "hidden": 32, "vocab_size": 261}
    special = S.SpecialTokens(pad=0, bos=2, eos=3, decoder_start=0 if style == "t5" else 3)

    def task(folder: Path) -> dict[str, Any]:
        model = weft.t5(**shape, head_dim=8) if style == "t5" else weft.bart(**shape, positions=64)
        row = R.TemplatedPairs(
            template="loom: {text}", target="label", labels=("0", "1"), label_texts=("no", "yes")
        )
        return {
            "model": S.replace(model, special_tokens=special),
            "task": R.TextToText(input_format=style),
            "data": made.data(folder, row),
        }

    return task


def walked(trained: run.Run, model: Any) -> list[float]:
    """As the Trainer does it: no decay of biases and norms, the gradient's norm at most so much, a
    mean over the batch's labels.
    """
    plain = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}],
        lr=RATE,
    )
    schedule = get_linear_schedule_with_warmup(optimiser, 0, STEPS)
    losses = []
    for _, work in zip(
        range(STEPS),
        trained.trainer.loader(trained.recipe.batch.length).from_position(0),
        strict=False,
    ):
        (batch,) = work.batches
        mask = batch.get("tokens_attention_mask", torch.ones_like(batch["tokens"]))
        loss = model(input_ids=batch["tokens"], attention_mask=mask, labels=batch["labels"]).loss
        loss.backward()
        clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        (classes, AutoModelForSequenceClassification),
        (tags, AutoModelForTokenClassification),
        (texts("t5"), AutoModelForSeq2SeqLM),
        (texts("bart"), AutoModelForSeq2SeqLM),
    ],
    ids=["class", "tag", "t5", "bart"],
)
def test_fine_tuning_walks_as_transformers_does(
    task: Callable[[Path], dict[str, Any]], kind: Any, tmp_path: Path
) -> None:
    parts = task(tmp_path)
    trained = whole_runs.build_run(
        made.recipe(
            tmp_path,
            **parts | {"model": S.with_dropout(parts["model"], 0.0)},
            steps=STEPS,
            grad_clip=CLIP,
            optimiser=R.AdamW(lr=RATE, weight_decay=DECAY),
            schedule=R.LinearSchedule(warmup_steps=0),
        )
    )
    model = kind.from_pretrained(save(trained.loss.model, tmp_path / "begin")).train()
    theirs = walked(trained, model)
    ours = [event.loss for event in trained.trainer]
    assert max(theirs) - min(theirs) > 0.1
    assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path / "end")
    assert_close(
        dict(trained.loss.model.state_dict()),
        dict(load(tmp_path / "end").state_dict()),
        rtol=1e-5,
        atol=1e-5,
    )
