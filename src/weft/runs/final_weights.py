"""Selection of a run's final weights: the last step, an average, or the best checkpoint."""

import torch

from ..support.console import Report
from ..support.ranks import Ranks
from ..training.averages import BestWeights, average_states
from ..training.checkpoints.parts import read_into, read_like
from .checkpoints import check_fingerprints
from .directory import RunDirectory
from .run import Run


def selected_weights(
    run: Run, directory: RunDirectory, report: Report
) -> dict[str, torch.Tensor] | None:
    """Return the weights of the final model; None for those of the last step."""
    if isinstance(best := run.trainer.average, BestWeights) and best.best is None:
        report(f"no validation has a finite {best.metric}; the model is that of the last step")
        return None
    if run.trainer.average is not None:
        return run.trainer.average.copies
    if not run.recipe.averaged_steps():
        return None
    ranks = run.trainer.ranks
    if ranks.splits_weights:
        return average_checkpoints(run, directory, report)
    weights = {name: tensor.clone() for name, tensor in run.loss.state_dict().items()}

    def fill_weights() -> str:
        for name, tensor in average_checkpoints(run, directory, report).items():
            read_into(weights[name], tensor)
        return ""

    ranks.from_first(fill_weights)  # others may have a disk without checkpoints
    ranks.broadcast(weights.values())
    return weights


def average_checkpoints(
    run: Run, directory: RunDirectory, report: Report
) -> dict[str, torch.Tensor]:
    """Return the mean weights of the last checkpoints."""
    ranks = run.trainer.ranks
    steps_to_average = run.recipe.averaged_steps()
    saved = directory.all_checkpoints(report, ranks if ranks.splits_weights else Ranks())
    last = [checkpoint for checkpoint in saved if checkpoint.step in steps_to_average]
    for checkpoint in last:
        check_fingerprints(run, checkpoint, directory)
    if len(last) < len(steps_to_average):
        report(
            f"averaged {len(last)} checkpoints instead of {len(steps_to_average)}; the others are "
            "missing or damaged"
        )
    if not ranks.splits_weights:
        return average_states(checkpoint.tensors("model") for checkpoint in last)
    state = run.loss.state_dict()
    return average_states(
        {name: read_like(state[name], tensor) for name, tensor in c.saved()["model"].items()}
        for c in last
    )
