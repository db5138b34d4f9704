"""What did training do to a model? Per block, the size of its matrices now and at the start, the size of what each branch adds beside the
residual stream it is added to, and how far the encoder's outputs still differ; for ELECTRA also how well the discriminator ranks replaced
tokens.

    python -m benchmarks.growth runs/electra-mini [runs/bert-mini ...] [--receipt FILE]

Sizes are root mean squares. Streams, branches and outputs are those of validation rows. An output's rank is the exponential of the entropy
of its principal components' variances; beside it, the share of its mean square that is the same for all tokens. The discriminator is
compared with scores that know only how often each token is a replaced one, counted on every other validation token. The last line is JSON.
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

from weft import recipe as R
from weft import run
from weft.data.loader import Loader
from weft.data.plan import planner
from weft.layers.roles import Role, roles_of
from weft.model.block import Branch
from weft.objectives.base import Batch, Objective
from weft.objectives.replaced import Score
from weft.train.checkpoint import newest

from . import receipt

BATCHES = 64


def rms(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())


def sizes(objective: torch.nn.Module) -> dict[str, float]:
    return {name: rms(p) for name, p in objective.named_parameters() if name.startswith("model.") and p.dim() == 2}


def batches(made: run.Made) -> list[Batch]:
    assert made.valid is not None, "growth reads validation rows; the recipe names none"
    samples = made.corruption.samples(made.valid, made.recipe.batch.length, tail=True)
    loader = Loader(planner(made.recipe.batch, samples, 0), samples, made.corruption, 0, 0, 1)
    return [batch for work in islice(loader.once(made.recipe.batch.count), BATCHES) for batch in work.batches]


def watch(model: torch.nn.Module) -> dict[str, list[tuple[float, float]]]:
    """The residual stream before each branch and what the branch adds to it, gathered while the model runs."""
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def hear(branch: str, part: Any, given: Any, _: Any) -> None:
        x_BLD = given[0]
        seen[branch].append((rms(x_BLD), rms(part.update(*given))))

    for name, part in model.named_modules():
        if isinstance(part, Branch) and name.startswith("encoder.blocks."):
            part.register_forward_hook(partial(hear, name))
    return seen


def spread(x_BLD: Tensor) -> dict[str, float]:
    """Whether the outputs of different tokens differ: a trunk that says the same everywhere has rank 1 and a common share of 1."""
    x_TD = x_BLD.flatten(0, 1).double()
    mean_D = x_TD.mean(0)
    variance_D = torch.linalg.svdvals(x_TD - mean_D).square()
    share_D = (variance_D / variance_D.sum()).clamp(min=1e-12)
    return {"rank": float((-(share_D * share_D.log()).sum()).exp()), "common": float(mean_D.square().sum() / x_TD.square().sum(1).mean())}


def outputs(objective: Objective, batch: Batch) -> dict[str, float]:
    model, tokens_BL = objective.model, batch["tokens"]
    x_BLD = model.encode(model.embed(tokens_BL, keep=batch.get("tokens_keep"))).x_BLD
    keep = batch.get("tokens_keep")
    return spread(x_BLD if keep is None else x_BLD[keep != 0][None])


def ranking(score: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Area under the ROC curve, where chance is 0.5, and average precision, where chance is the share of replaced tokens."""
    order = np.argsort(score, kind="stable")
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    positives, falling = int(truth.sum()), truth[order[::-1]]
    area = (rank[truth].sum() - positives * (positives + 1) / 2) / (positives * (len(truth) - positives))
    return {"auc": float(area), "precision": float((falling.cumsum()[falling] / (np.flatnonzero(falling) + 1)).mean())}


def judged(objective: Score, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every token that counts: the discriminator's score, whether it was replaced, and which it is."""
    answer, at_T = objective.answer(batch), batch["labels_at"]
    filled = batch["tokens"].flatten().index_copy(0, at_T, answer.drawn_T)
    truth = torch.zeros(len(filled), dtype=torch.bool).index_copy(0, at_T, answer.drawn_T != batch["labels"].flatten()[at_T])
    keep = batch["tokens_keep"].flatten() != 0 if "tokens_keep" in batch else torch.ones_like(truth)
    return answer.replaced_BL.flatten()[keep].numpy(), truth[keep].numpy(), filled[keep].numpy()


def discriminator(objective: Score, given: list[Batch]) -> dict[str, Any]:
    score, truth, token = (np.concatenate(part) for part in zip(*(judged(objective, batch) for batch in given), strict=True))
    counted, asked = np.arange(len(truth)) % 2 == 0, np.arange(len(truth)) % 2 == 1
    share, many = truth.mean(), int(token.max()) + 1
    often = (np.bincount(token[counted], truth[counted], many) + 2 * share) / (np.bincount(token[counted], minlength=many) + 2)
    loss = np.logaddexp(0, score[asked]) - truth[asked] * score[asked]
    return {"replaced": float(share), "loss": float(loss.mean()), **ranking(score[asked], truth[asked]),
            "token alone": ranking(often[token[asked]], truth[asked])}


@torch.no_grad()
def growth(folder: Path) -> dict[str, Any]:
    found = newest(folder / "checkpoints", print)
    if found is None:
        raise SystemExit(f"{folder} has no checkpoint; train it first")
    made = run.make(R.of_run(folder), fresh=False)
    objective, start, given = made.objective.eval(), sizes(made.objective), batches(made)
    before = outputs(objective, given[0])
    objective.load_state_dict(found.groups()["model"])
    now, after, seen = sizes(objective), outputs(objective, given[0]), watch(objective.model)
    result: dict[str, Any] = {"step": found.facts["step"]}
    if isinstance(objective, Score):
        result["discriminator"] = discriminator(objective, given)
    else:
        for batch in given:
            objective(batch)
    result["outputs"] = {"start": before, "now": after}
    inner = [name for name, role in roles_of(objective).items() if role is Role.MATRIX and name in now]
    result["blocks"] = {"start": fmean(start[name] for name in inner), "now": fmean(now[name] for name in inner)}
    result["matrices"] = {name: {"start": start[name], "now": now[name]} for name in now}
    result["branches"] = {name: {"stream": fmean(r for r, _ in pairs), "added": fmean(a for _, a in pairs)} for name, pairs in seen.items()}
    return result


def show(folder: Path, found: dict[str, Any]) -> None:
    size, outputs = found["blocks"], found["outputs"]
    print(f"{folder}, step {found['step']:,}: matrices of blocks {size['start']:.3f} at the start, {size['now']:.3f} now; "
          f"the outputs' rank {outputs['start']['rank']:.1f} at the start, {outputs['now']['rank']:.1f} now, "
          f"common share {outputs['start']['common']:.2f} and {outputs['now']['common']:.2f}", flush=True)
    for name, size in found["branches"].items():
        print(f"  {name:32} stream {size['stream']:6.2f}, adds {size['added']:6.2f}")
    if judge := found.get("discriminator"):
        print(f"  replaced tokens: loss {judge['loss']:.3f}, AUC {judge['auc']:.3f} (by the token alone {judge['token alone']['auc']:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--receipt", metavar="FILE")
    given, began, found = parser.parse_args(), time.perf_counter(), dict[str, Any]()
    for folder in given.runs:
        found[folder.name] = growth(folder)
        show(folder, found[folder.name])
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
