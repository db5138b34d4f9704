"""What a run costs, from its recipe alone: FLOPs, bytes on disk, bytes in memory."""

from math import ceil
from typing import NamedTuple

from .. import spec as S
from ..spec import flops
from ..spec.spec import iterate_blocks
from .averages import WeightAverage
from .batching import Batching, FixedBatch
from .optimisers import OptimiserSpec
from .recipe import Recipe
from .rows import Documents, RowSchema
from .workload import holds_average, image_side, image_size, row_flops, workload_of_recipe

ASSUMED_FILL = 0.25  # of a row's length, where samples are as long as they are: a low guess, so that none is refused

# FLOPs


def step_flops(recipe: Recipe, length: int | None = None) -> float:
    """Forward and backward of one whole step over all ranks, as `weft plan` counts them; rows of `length` tokens, all full."""
    workload = workload_of_recipe(recipe, row_length=length)
    return workload.rows * row_flops(workload).training


def run_flops(recipe: Recipe) -> float:
    """Of all steps, whatever their lengths."""
    ends = [(share * recipe.steps, length) for share, length in recipe.length_schedule] or [
        (float(recipe.steps), recipe.batch.length)
    ]
    begin, total = 0.0, 0.0
    for end, length in ends:
        total += (end - begin) * step_flops(recipe, length)
        begin = end
    return total


# Bytes


def checkpoint_bytes(
    optimiser: OptimiserSpec, average: WeightAverage | None, parameters: int
) -> int:
    """Weights, the optimiser's moments, and the average."""
    return int(4 * parameters * (1 + optimiser.states_per_parameter + holds_average(average)))


class MemoryEstimate(NamedTuple):
    """Bytes that one rank needs at least."""

    state_bytes: int  # weights, gradients, moments, average
    batch_bytes: int  # the numbers that a step reads
    activations_per_row: int  # activations kept for the backward pass, per row
    rows: int  # rows in one forward pass

    @property
    def total(self) -> int:
        return self.state_bytes + self.batch_bytes + self.activations_per_row * self.rows


def estimate_memory(recipe: Recipe, ranks: int = 1, parts: int = 1) -> MemoryEstimate:
    """A low estimate: nothing that an implementation could avoid is counted.

    Args:
        recipe: of the run.
        ranks: those that read different samples.
        parts: into how many the weights, gradients and moments are split.
    """
    rows_per_rank = ceil(recipe.batch.rows_per_step() / ranks)
    models = [recipe.model, *recipe.task.extra_models()]
    copies = recipe.task.reference_models() + (
        2 + recipe.optimiser.states_per_parameter + holds_average(recipe.average)
        if recipe.trainable is None
        else 1
    )
    source = recipe.model.source
    if isinstance(source, S.Tokens):
        read = 16 * average_row_length(recipe.data.rows, recipe.batch)  # ids and labels, as int64
    else:
        read = (
            4
            * source.channels
            * (image_side(recipe.model, recipe.batch.length) or image_size(recipe.model)) ** 2
        )
    return MemoryEstimate(
        state_bytes=int(4 * copies * sum(m.parameter_count() for m in models)) // parts,
        batch_bytes=int(rows_per_rank * read * recipe.task.sequences_per_row()),
        activations_per_row=int(sum(activation_bytes(recipe, m) for m in models))
        * recipe.task.sequences_per_row(),
        rows=min(rows_per_rank, recipe.micro_batch_size or rows_per_rank),
    )


def average_row_length(rows: RowSchema, batch: Batching) -> float:
    """Tokens of a row that are no padding, about."""
    whole = isinstance(rows, Documents) or not isinstance(batch, FixedBatch)
    return batch.length * (1 if whole else ASSUMED_FILL)


def activation_bytes(recipe: Recipe, spec: S.Spec) -> float:
    """Bytes per row: the inputs of each linear map and activation of each block, and the logits with their gradient."""
    size = 2 if recipe.precision == "bf16" else 4
    task, reads_text = recipe.task, isinstance(spec.source, S.Tokens)
    length = image_side(recipe.model, recipe.batch.length)
    if reads_text:
        length = round(average_row_length(recipe.data.rows, recipe.batch))
    target = max(1, round(length * task.decoder_ratio())) if length and reads_text else None
    tokens = flops.input_tokens(spec, length, target, task.visible_fraction())
    total = 0.0
    for placed in iterate_blocks(spec):
        kept = activations_per_token(placed.block, placed.width)
        if recipe.activation_checkpointing:
            kept = placed.width
        total += size * kept * tokens.read_by(spec, placed)
    if isinstance(spec.head, S.LMHead):
        both = spec.encoder is not None and spec.decoder is not None
        scored = tokens.target if both else tokens.whole * task.scored_fraction()
        total += 2 * size * spec.vocab_size * scored
    return total


def activations_per_token(block: S.Block | S.ParallelBlock, width: int) -> float:
    """Numbers: x, q, k, v and the mixed values of an attention; x, and each hidden layer twice, of a feed-forward."""
    branches = (block.attention, getattr(block, "cross_attention", None), block.feedforward)
    return sum(branch.inner.activations(width) for branch in branches if branch is not None)
