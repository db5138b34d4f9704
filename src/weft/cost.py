"""What a run costs, from its recipe alone: FLOPs, bytes on disk, bytes in memory."""
from math import ceil
from typing import NamedTuple

from . import count
from . import recipe as R
from . import spec as S
from .check import blocks

FILLED = 0.25                              # of a row's length, where samples are as long as they are: a low guess, so that none is refused


def rows(recipe: R.Recipe) -> int:
    return recipe.batch.count if not isinstance(recipe.batch, R.Budget) else max(1, recipe.batch.tokens // recipe.batch.length)


def units(recipe: R.Recipe) -> str:
    """What a run reads and its speed is counted in."""
    return "tokens" if isinstance(recipe.model.source, S.Tokens) else "images"


# FLOPs

def step_flops(recipe: R.Recipe, length: int | None = None) -> float:
    """Forward and twice that backward, of one whole step over all ranks; rows taken as full."""
    if units(recipe) == "images":
        return 3.0 * recipe.model.flops(batch=rows(recipe))
    length = length or recipe.batch.length
    many = rows(recipe) * recipe.batch.length // length
    target = length if recipe.model.encoder is not None and recipe.model.decoder is not None else None
    total = 3.0 * recipe.model.flops(batch=many, length=length, target=target)
    if isinstance(recipe.objective, R.ReplacedTokens):
        total += 3.0 * recipe.objective.generator.flops(batch=many, length=length)
    return total


def run_flops(recipe: R.Recipe) -> float:
    """Of all steps, whatever their lengths."""
    ends = [(share * recipe.steps, length) for share, length in recipe.lengths] or [(float(recipe.steps), recipe.batch.length)]
    begin, total = 0.0, 0.0
    for end, length in ends:
        total += (end - begin) * step_flops(recipe, length)
        begin = end
    return total


# Bytes

def moments(recipe: R.Recipe) -> float:
    """The optimiser's own numbers per parameter: two, one for momentum alone, few where factored."""
    return 0.1 if isinstance(recipe.optimiser, R.Adafactor) else 1 if isinstance(recipe.optimiser, R.SGD) else 2


def checkpoint_bytes(recipe: R.Recipe, parameters: int) -> int:
    """Weights, the optimiser's moments, and the average."""
    return int(4 * parameters * (1 + moments(recipe) + isinstance(recipe.average, R.Moving | R.Best)))


class Memory(NamedTuple):
    """Bytes that one rank needs at least."""
    state: int                             # weights, gradients, moments, average
    batch: int                             # the numbers that a step reads
    row: int                               # activations kept for the backward pass, per row
    rows: int                              # rows in one forward pass

    @property
    def total(self) -> int:
        return self.state + self.batch + self.row * self.rows


def memory(recipe: R.Recipe, ranks: int = 1) -> Memory:
    """A low estimate: nothing that an implementation could avoid is counted."""
    own = ceil(rows(recipe) / ranks)
    models = [recipe.model, *([recipe.objective.generator] if isinstance(recipe.objective, R.ReplacedTokens) else [])]
    copies = 2 + moments(recipe) + isinstance(recipe.average, R.Moving | R.Best) if recipe.trained is None else 1
    source = recipe.model.source
    if isinstance(source, S.Tokens):
        read = 16 * filled(recipe)         # ids and labels, as int64
    else:
        read = 4 * source.channels * getattr(source, "image", 224) ** 2
    return Memory(state=int(4 * copies * sum(m.parameters() for m in models)), batch=int(own * read),
                  row=int(sum(activations(recipe, m) for m in models)), rows=min(own, recipe.micro or own))


def filled(recipe: R.Recipe) -> float:
    """Tokens of a row that are no padding, about."""
    whole = isinstance(recipe.data.row, R.Documents) or not isinstance(recipe.batch, R.Rows)
    return recipe.batch.length * (1 if whole else FILLED)


def activations(recipe: R.Recipe, m: S.Model) -> float:
    """Bytes per row: the inputs of each linear map and activation of each block, and the logits with their gradient."""
    size = 2 if recipe.precision == "bf16" else 4
    side, tokens, _ = count.inputs(m, None)
    length = filled(recipe) if isinstance(m.source, S.Tokens) else tokens
    target = m.target.count if isinstance(m.target, S.Queries) else length * written(recipe)
    seen = 1 - recipe.objective.share if isinstance(recipe.objective, R.Autoencoding) else 1.0
    total = 0.0
    for path, width, block in blocks(m):
        here = target if path.startswith("decoder") and m.encoder is not None else length * (1 if path.startswith("head") else seen)
        if ".stages." in path:
            here = (side / 2 ** int(path.split(".")[2])) ** 2
        total += here * size * (width if recipe.recompute else per_token(block, width))
    if isinstance(m.head, S.Vocabulary):
        total += 2 * size * count.vocabulary(m) * (target if m.encoder is not None and m.decoder is not None else length * scored(recipe))
    return total


def written(recipe: R.Recipe) -> float:
    """Tokens that a decoder writes per token that its encoder reads."""
    return recipe.objective.share if isinstance(recipe.objective, R.CorruptedSpans) else 1.0


def scored(recipe: R.Recipe) -> float:
    """The share of tokens whose logits are asked for."""
    o = recipe.objective
    return o.share if isinstance(o, R.MaskedTokens | R.ReplacedTokens) else 1.0


def per_token(block: S.Block | S.Parallel, width: int) -> float:
    """Numbers: x, q, k, v and the mixed values of an attention; x, and each hidden layer twice, of a feed-forward."""
    found = 0.0
    for branch in (block.attention, getattr(block, "cross", None), block.feedforward):
        inner = branch.inner if branch is not None else None
        if isinstance(inner, S.Attention):
            k, v, groups = count.widths(inner, width)
            found += width + inner.heads * (k + v) + groups * (k + v)
        elif isinstance(inner, S.Experts):
            found += inner.chosen * (width + 2 * inner.expert.hidden)
        elif inner is not None:
            found += width + (3 if isinstance(inner, S.Gated) else 2) * inner.hidden
    return found
