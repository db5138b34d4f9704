"""Measure how training changed a model: per block, the norms of its matrices now and at
initialisation, the size of each branch's output relative to the residual stream, and the spread of
the encoder's outputs (`weft.observe.spread`); for ELECTRA also how well the discriminator ranks
replaced tokens.

    python -m benchmarks.growth runs/electra-mini [runs/bert-mini ...] [--receipt FILE]

Sizes are root mean squares. Streams, branches and outputs are those of validation rows. The
discriminator is compared with scores that know only how often each token is a replaced one, counted
on every other validation token. The last line is JSON.
"""

import argparse
import json
import time
from collections import defaultdict
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft import observe
from weft import recipe as R
from weft.data.batches.batching import build_planner
from weft.data.batches.collate import attention_mask
from weft.data.batches.loader import Loader
from weft.data.shards.store import Store
from weft.nn.block import BranchLayer
from weft.nn.layers.roles import Role, parameter_facts
from weft.runs import run
from weft.tasks.base import Batch, Loss, masks
from weft.tasks.replaced_token_detection import ReplacedTokenLoss
from weft.training.checkpoints.checkpoint import latest_checkpoint

from . import command, receipt
from .trials import build_run

BATCHES = 64


def rms(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())


def sizes(objective: torch.nn.Module) -> dict[str, float]:
    return {
        name: rms(p)
        for name, p in objective.named_parameters()
        if name.startswith("model.") and p.dim() == 2
    }


def batches(made: run.Run) -> list[Batch]:
    assert isinstance(made.prepared.valid, Store), "growth reads validation rows of one source"
    samples = made.preprocess.open_samples(
        made.prepared.valid, made.recipe.batch.length, include_partial=True
    )
    loader = Loader(build_planner(made.recipe.batch, samples, 0), samples, made.preprocess, 0, 0, 1)
    return [
        batch
        for work in islice(loader.one_epoch(made.recipe.batch.rows_per_step()), BATCHES)
        for batch in work.batches
    ]


def watch(model: torch.nn.Module) -> dict[str, list[tuple[float, float]]]:
    """The residual stream before each branch and what the branch adds to it, gathered while the
    model runs.
    """
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def hear(branch: str, part: Any, given: Any, _: Any) -> None:
        x_BLD = given[0]
        seen[branch].append((rms(x_BLD), rms(part.update(*given))))

    for name, part in model.named_modules():
        if isinstance(part, BranchLayer) and name.startswith("encoder.blocks."):
            part.register_forward_hook(partial(hear, name))
    return seen


def outputs(objective: Loss, batch: Batch) -> dict[str, float]:
    model = objective.model
    tokens_BL = batch["tokens"]
    with observe.output_states(model, tokens_BL.numel()) as states:
        model.encode(model.embed(tokens_BL, **masks(batch)))
    spread = observe.spread(torch.cat(states))
    return {"rank": spread.effective_rank, "common": spread.common_share}


def ranking(score: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Area under the ROC curve, where chance is 0.5, and average precision, where chance is the
    share of replaced tokens.
    """
    order = np.argsort(score, kind="stable")
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    positives = int(truth.sum())
    falling = truth[order[::-1]]
    area = (rank[truth].sum() - positives * (positives + 1) / 2) / (
        positives * (len(truth) - positives)
    )
    return {
        "auc": float(area),
        "precision": float((falling.cumsum()[falling] / (np.flatnonzero(falling) + 1)).mean()),
    }


def judged(objective: ReplacedTokenLoss, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every token that counts: the discriminator's score, whether it was replaced, and which it
    is.
    """
    answer = objective.forward_outputs(batch)
    at_T = batch["labels_at"]
    filled = batch["tokens"].flatten().index_copy(0, at_T, answer.drawn_T)
    truth = torch.zeros(len(filled), dtype=torch.bool).index_copy(
        0, at_T, answer.drawn_T != batch["labels"].flatten()[at_T]
    )
    mask_BL = attention_mask(batch, "tokens")
    real = torch.ones_like(truth) if mask_BL is None else mask_BL.flatten()
    return answer.replaced_BL.flatten()[real].numpy(), truth[real].numpy(), filled[real].numpy()


def discriminator(objective: ReplacedTokenLoss, given: list[Batch]) -> dict[str, Any]:
    score, truth, token = (
        np.concatenate(part)
        for part in zip(*(judged(objective, batch) for batch in given), strict=True)
    )
    counted = np.arange(len(truth)) % 2 == 0
    asked = np.arange(len(truth)) % 2 == 1
    share = truth.mean()
    many = int(token.max()) + 1
    often = (np.bincount(token[counted], truth[counted], many) + 2 * share) / (
        np.bincount(token[counted], minlength=many) + 2
    )
    loss = np.logaddexp(0, score[asked]) - truth[asked] * score[asked]
    return {
        "replaced": float(share),
        "loss": float(loss.mean()),
        **ranking(score[asked], truth[asked]),
        "token alone": ranking(often[token[asked]], truth[asked]),
    }


@torch.no_grad()
def growth(folder: Path) -> dict[str, Any]:
    found = latest_checkpoint(folder / "checkpoints", print)
    if found is None:
        raise SystemExit(f"{folder} has no checkpoint; train it first")
    made = build_run(R.recipe_of_run(folder), is_new=False)
    objective = made.loss.eval()
    start = sizes(made.loss)
    given = batches(made)
    before = outputs(objective, given[0])
    objective.load_state_dict(found.all_tensors()["model"])
    now = sizes(objective)
    after = outputs(objective, given[0])
    seen = watch(objective.model)
    result: dict[str, Any] = {"step": found.state["step"]}
    if isinstance(objective, ReplacedTokenLoss):
        result["discriminator"] = discriminator(objective, given)
    else:
        for batch in given:
            objective(batch)
    result["outputs"] = {"start": before, "now": after}
    inner = [
        name
        for name, facts in parameter_facts(objective).items()
        if facts.role is Role.MATRIX and name in now
    ]
    result["blocks"] = {
        "start": fmean(start[name] for name in inner),
        "now": fmean(now[name] for name in inner),
    }
    result["matrices"] = {name: {"start": start[name], "now": now[name]} for name in now}
    result["branches"] = {
        name: {"stream": fmean(r for r, _ in pairs), "added": fmean(a for _, a in pairs)}
        for name, pairs in seen.items()
    }
    return result


def show(folder: Path, found: dict[str, Any]) -> None:
    size = found["blocks"]
    outputs = found["outputs"]
    print(
        f"{folder}, step {found['step']:,}: matrices of blocks {size['start']:.3f} at the start, "
        f"{size['now']:.3f} now; "
        f"the outputs' rank {outputs['start']['rank']:.1f} at the start, "
        f"{outputs['now']['rank']:.1f} now, "
        f"common share {outputs['start']['common']:.2f} and {outputs['now']['common']:.2f}",
        flush=True,
    )
    for name, size in found["branches"].items():
        print(f"  {name:32} stream {size['stream']:6.2f}, adds {size['added']:6.2f}")
    if judge := found.get("discriminator"):
        print(
            f"  replaced tokens: loss {judge['loss']:.3f}, AUC {judge['auc']:.3f} (by the token "
            f"alone {judge['token alone']['auc']:.3f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--receipt", metavar="FILE")
    given = parser.parse_args()
    began = time.perf_counter()
    found = dict[str, Any]()
    for folder in given.runs:
        found[folder.name] = growth(folder)
        show(folder, found[folder.name])
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
