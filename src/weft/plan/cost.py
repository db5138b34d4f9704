"""Cost of a run, computed from its recipe: FLOPs, bytes on disk, bytes in memory."""

from math import ceil
from typing import NamedTuple

from .. import spec as S
from ..recipe.averages import WeightAverage
from ..recipe.batching import Batching, FixedBatch
from ..recipe.data.rows import Documents, RowSchema
from ..recipe.optimisers import OptimiserSpec
from ..recipe.recipe import Recipe
from ..spec.count import iterate_blocks
from .recipe_workload import Workload, holds_average, input_tokens, row_flops, workload_of_recipe

# share of the row length for samples of varying length: a low estimate, so that no run that fits is
# rejected
ASSUMED_FILL = 0.25

# FLOPs


def step_flops(workload: Workload) -> float:
    """Return the FLOPs of forward and backward of one step over all ranks, as in `weft plan`; all
    rows are full.
    """
    return workload.rows * row_flops(workload).training


def run_flops(recipe: Recipe) -> float:
    """Return the FLOPs of all steps, with any length schedule."""
    begin = 0.0
    total = 0.0
    for fraction, length in recipe.training_schedule.phases:
        end = fraction * recipe.steps
        total += (end - begin) * step_flops(workload_of_recipe(recipe, row_length=length))
        begin = end
    return total


# Bytes


def checkpoint_bytes(
    optimiser: OptimiserSpec, average: WeightAverage | None, parameters: int
) -> int:
    """Return the bytes of the weights, the optimiser's moments and the average."""
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
    """Return a lower bound: only memory that every implementation needs is counted.

    Args:
        recipe: of the run.
        ranks: number of ranks that read different samples.
        parts: number of parts into which weights, gradients and moments are split.
    """
    length = average_row_length(recipe.data.rows, recipe.batch)
    workload = workload_of_recipe(recipe, auto="fp32", row_length=length)
    sequences = recipe.task.sequences_per_row()
    rows = ceil(recipe.batch.rows_per_step() / ranks)
    recomputed = bool(recipe.activation_checkpointing)
    activations = activation_bytes(workload, recomputed)
    return MemoryEstimate(
        state_bytes=int(state_bytes(workload, trains_all=recipe.trainable is None)) // parts,
        batch_bytes=rows * sequences * bytes_read_per_row(workload),
        activations_per_row=int(activations) * sequences,
        rows=min(rows, recipe.micro_batch_size or rows),
    )


def average_row_length(rows: RowSchema, batch: Batching) -> int:
    """Return the approximate number of tokens per row without padding."""
    whole = isinstance(rows, Documents) or not isinstance(batch, FixedBatch)
    return batch.length if whole else max(1, round(batch.length * ASSUMED_FILL))


def state_bytes(workload: Workload, trains_all: bool) -> float:
    """Return the bytes of weights and copies in fp32; if the whole model is trained, also of
    gradients and the optimiser's moments. Trained parts of a frozen model are not counted.
    """
    copies = 2 + workload.moments + workload.copies if trains_all else 1 + workload.references
    return 4 * copies * workload.parameters


def bytes_read_per_row(workload: Workload) -> int:
    """Ids and labels as int64, or pixels in fp32."""
    source = workload.spec.source
    if isinstance(source, S.Tokens):
        return 16 * workload.length
    return 4 * source.channels * workload.length**2


def activation_bytes(workload: Workload, recomputed: bool = False) -> float:
    """Return the bytes per row of all trained models: the inputs of each linear map and activation
    in each block, and the logits with their gradient.

    Args:
        workload: of a step.
        recomputed: whether only the input of each block is stored.
    """
    size = 2 if workload.precision == "bf16" else 4
    total = 0.0
    for spec in (workload.spec, *workload.extra):
        tokens = input_tokens(spec, workload)
        for placed in iterate_blocks(spec):
            whole = activations_per_token(placed.block, placed.width)
            kept = placed.width if recomputed else whole
            total += size * kept * tokens.read_by(spec, placed)
        if isinstance(spec.head, S.LMHead):
            both = spec.encoder is not None and spec.decoder is not None
            scored = tokens.target if both else tokens.whole * workload.scored
            total += 2 * size * spec.vocab_size * scored
    return total


def activations_per_token(block: S.Block | S.ParallelBlock, width: int) -> float:
    """Numbers: x, q, k, v and the mixed values of an attention; x, and each hidden layer twice, of
    a feed-forward.
    """
    branches = (block.attention, getattr(block, "cross_attention", None), block.feedforward)
    return sum(branch.inner.activations(width) for branch in branches if branch is not None)


# A run is refused if its estimate is more than this many times the free memory
TOLERATED_OVERESTIMATE = 1.5


def check_memory(name: str, size_field: str, need: MemoryEstimate, free: int) -> None:
    """Raise ValueError before anything is allocated, but only if the run is far too large for the
    estimate to be wrong.

    Args:
        name: of the recipe.
        size_field: of its batching, which sets the rows per step.
        need: of one rank.
        free: bytes that the rank may take.
    """
    if need.total <= TOLERATED_OVERESTIMATE * free:
        return
    room = free - need.state_bytes
    if room < 0:
        way = "a smaller model"
    elif room < need.batch_bytes:
        way = f"fewer rows per step, with --set batch.{size_field}=…"
    else:
        fit = max(1, (room - need.batch_bytes) // max(need.activations_per_row, 1))
        way = (
            f"--set micro_batch_size={1 << fit.bit_length() - 1}"
            if need.rows > 1
            else "shorter rows, with --set batch.length=…"
        )
    size = 1e9
    raise ValueError(
        f"{name} needs about {need.total / size:,.1f} GB of memory, but only {free / size:,.1f} "
        f"GB are free: "
        f"{need.state_bytes / size:,.1f} GB for weights, gradients and optimiser, "
        f"{need.batch_bytes / size:,.1f} GB for the batch, "
        f"{need.activations_per_row * need.rows / size:,.1f} GB for the activations of "
        f"{need.rows:,} rows per forward pass; "
        f"give {way}"
    )
