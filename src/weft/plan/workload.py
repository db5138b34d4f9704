"""What one step of training computes, whoever computes it: of a recipe, or of a model alone with the defaults of its paper's time."""

from dataclasses import dataclass, replace

from .. import recipe as R
from .. import spec as S
from ..families import training_length_of_name
from ..recipe.cost import holds_average, image_side
from ..recipe.recipe import rows_per_step, sample_unit
from ..spec import flops as count
from ..spec.attention import head_dims
from ..spec.spec import iterate_blocks

TOKENS_PER_PARAMETER = 20  # compute-optimal (Hoffmann et al. 2022, arXiv:2203.15556, table 3)
# Tokens per step by number of parameters (Brown et al. 2020, arXiv:2005.14165, table 2.1).
BATCH_TOKENS = ((1e9, 500_000), (5e9, 1_000_000), (100e9, 2_000_000), (float("inf"), 3_200_000))
DEFAULT_LENGTH = 512  # tokens per row, where neither positions nor a context length say it
BATCH_IMAGES = 4096  # ViT (arXiv:2010.11929, appendix B.1)


@dataclass(frozen=True)
class Workload:
    """A step over all ranks, and how many of them.

    Attributes:
        name: of the model or recipe.
        spec: the model.
        rows: sequences or images per step.
        length: tokens per row; of images, the pixels of a side.
        steps: of the run.
        target_length: tokens that a decoder beside an encoder reads per row.
        scored: fraction of the positions whose logits are computed.
        visible: fraction of the input that the blocks see.
        precision: "fp32" or "bf16".
        moments: the optimiser's numbers per parameter.
        copies: averaged weights and reference models beside the trained ones.
        references: of the copies, those that read every row forward.
        extra: models that are trained beside it.
        unit: what a run reads, "tokens" or "images".
        length_reason: where the length comes from, in a few words; "" where a recipe or an option gives it.
        any_rows: whether nobody fixed `rows`, so that they may be a multiple of what reads them.
    """

    name: str
    spec: S.Spec
    rows: int
    length: int
    steps: int
    target_length: int | None = None
    scored: float = 1.0
    visible: float = 1.0
    precision: str = "bf16"
    moments: float = 2.0
    copies: int = 0
    references: int = 0
    extra: tuple[S.Spec, ...] = ()
    unit: str = "tokens"
    length_reason: str = ""
    any_rows: bool = False

    @property
    def parameters(self) -> int:
        """Of all models that are trained."""
        return sum(spec.parameter_count() for spec in (self.spec, *self.extra))

    @property
    def units_per_row(self) -> int:
        """Tokens per row, those of the target included; 1 for images."""
        return 1 if self.unit == "images" else self.length + (self.target_length or 0)

    @property
    def samples_read(self) -> int:
        """Tokens or images of the whole run."""
        return self.steps * self.rows * self.units_per_row

    def with_rows_for(self, readers: int) -> "Workload":
        """The same samples in steps of a multiple of `readers` rows, where that is free."""
        if not self.any_rows:
            return self
        rows = readers * max(1, round(self.rows / readers))
        return replace(self, rows=rows, steps=max(1, round(self.steps * self.rows / rows)))


def workload_of_spec(
    name: str, spec: S.Spec, length: int | None = None, tokens: float | None = None
) -> Workload:
    """The workload of a model alone: bf16, Adam, rows of its context length, tokens by the compute-optimal rule.

    Args:
        name: of the model.
        spec: the model.
        length: tokens per row; pixels of a side for images (default: what it was trained for).
        tokens: tokens or images to train on (default: 20 tokens per parameter; images: 300 epochs of ImageNet).
    """
    parameters = spec.parameter_count()
    if not isinstance(spec.source, S.Tokens):
        images = tokens or 300 * 1_281_167
        steps = max(1, round(images / BATCH_IMAGES))
        side = length or image_size(spec)
        return Workload(name, spec, BATCH_IMAGES, side, steps, unit="images", any_rows=True)
    length, reason = (length, "") if length else row_length(name, spec)
    both = spec.encoder is not None and spec.decoder is not None
    per_step = next(size for limit, size in BATCH_TOKENS if parameters < limit)
    rows = max(1, round(per_step / (length * (1 + both))))
    workload = Workload(
        name,
        spec,
        rows,
        length,
        1,
        target_length=length if both else None,
        length_reason=reason,
        any_rows=True,
    )
    tokens = tokens or TOKENS_PER_PARAMETER * parameters
    return replace(workload, steps=max(1, round(tokens / (rows * workload.units_per_row))))


def row_length(name: str, spec: S.Spec) -> tuple[int, str]:
    """Return the tokens per row of a model's training, and how they are known."""
    if spec.context_length:
        return spec.context_length, "its context length"
    if trained := training_length_of_name(name):
        return trained, "as it was trained"
    if positions := getattr(getattr(spec.source, "positions", None), "max_length", None):
        return int(positions), "as many as it has positions"
    return DEFAULT_LENGTH, "assumed; --row-length gives another"


def workload_of_recipe(recipe: R.Recipe, auto: str = "bf16") -> Workload:
    """The workload of a recipe, rows taken as full; a length schedule counts by its last phase.

    Args:
        recipe: the recipe.
        auto: what its precision "auto" becomes on the planned device.
    """
    unit, task, spec = sample_unit(recipe), recipe.task, recipe.model
    both = spec.encoder is not None and spec.decoder is not None and not spec.queries
    length = recipe.batch.length
    if unit == "images":
        length = image_side(recipe) or image_size(spec)
    return Workload(
        recipe.name,
        spec,
        rows_per_step(recipe) * task.sequences_per_row(),
        length,
        recipe.steps,
        target_length=max(1, round(length * task.decoder_ratio())) if both else None,
        scored=task.scored_fraction(),
        visible=task.visible_fraction(),
        precision=auto if recipe.precision == "auto" else recipe.precision,
        moments=recipe.optimiser.states_per_parameter,
        copies=int(holds_average(recipe)) + task.reference_models(),
        references=task.reference_models(),
        extra=task.extra_models(),
        unit=unit,
    )


def image_size(spec: S.Spec) -> int:
    """Pixels of a side that a model was made for, or the usual number."""
    return spec.source.image_size if isinstance(spec.source, S.Patches) else 224


def with_samples(workload: Workload, samples: float | None) -> Workload:
    """As many steps as read so many tokens or images; None: as it is."""
    if samples is None:
        return workload
    return replace(
        workload, steps=max(1, round(samples / (workload.rows * workload.units_per_row)))
    )


# FLOPs


@dataclass(frozen=True)
class RowFlops:
    """FLOPs of matrix products of one row, as torch's FlopCounterMode counts them."""

    forward: float
    backward: float
    scores: float  # of `forward`, those of attention scores and of the values that they mix
    references: float = 0.0  # of frozen models that read the same row

    @property
    def training(self) -> float:
        """What a model needs: forward and backward, and what its references need."""
        return self.forward + self.backward + self.references

    def computed(self, checkpointing: bool, fused: bool = True) -> float:
        """What a device computes: blocks a second time, and scores a second time where a fused kernel does not store them
        (Dao et al. 2022, arXiv:2205.14135, section 3.1)."""
        again = self.forward if checkpointing else 0.0
        return self.training + again + (self.scores / 2 if fused else 0.0)


def row_flops(workload: Workload) -> RowFlops:
    """The backward pass of a product is two products; pixels need no gradient."""
    total = RowFlops(0.0, 0.0, 0.0)
    for spec in (workload.spec, *workload.extra):
        forward, scores = forward_flops(spec, workload), score_flops(spec, workload)
        backward = 2 * forward - first_map_flops(spec, workload.length)
        total = RowFlops(total.forward + forward, total.backward + backward, total.scores + scores)
    return replace(total, references=workload.references * forward_flops(workload.spec, workload))


def forward_flops(spec: S.Spec, workload: Workload) -> float:
    """Of one row, logits at the scored positions alone."""
    whole = spec.flops(1, workload.length, workload.target_length)
    if not isinstance(spec.head, S.LMHead):
        return whole
    tokens = workload.target_length or workload.length
    scored = round(tokens * workload.scored)
    return whole - spec.head.flops(spec, tokens) + spec.head.flops(spec, scored)


def input_tokens(spec: S.Spec, workload: Workload) -> tuple[int, int, int]:
    """The side of the image grid, the tokens of a row, and those that a decoder beside an encoder reads."""
    side, tokens, _ = count.input_flops(spec, workload.length)
    return side, tokens, spec.queries or workload.target_length or tokens


def score_flops(spec: S.Spec, workload: Workload) -> float:
    """Of one row: q kᵀ and weights times v of every attention."""
    side, tokens, targets = input_tokens(spec, workload)
    total = 0.0
    for _, width, block, place, stage in iterate_blocks(spec):
        decodes = place == "decoder" and spec.encoder is not None
        rows = -(-side // 2**stage) if stage is not None else 0
        queries = rows * rows if stage is not None else targets if decodes else tokens
        total += attention_score_flops(block.attention.inner, width, queries, queries, rows or side)
        across = getattr(block, "cross_attention", None)
        if across is not None:
            total += attention_score_flops(across.inner, width, queries, tokens, side)
    return total


def attention_score_flops(inner: object, width: int, queries: int, keys: int, side: int) -> float:
    if not isinstance(inner, S.Attention):
        return 0.0
    key_dim, value_dim, _ = head_dims(inner, width)
    scores = inner.pattern.scores(queries, keys, side).scores
    return 2.0 * scores * inner.heads * (key_dim + value_dim)


def first_map_flops(spec: S.Spec, length: int) -> float:
    """What the map of pixels would cost once more, were there a gradient of pixels."""
    if not isinstance(spec.source, S.Patches) or spec.source.stem is not None:
        return 0.0
    side = -(-length // spec.source.patch_size)
    return 2.0 * side * side * spec.width * spec.patch_pixels
