"""The workload of a recipe: rows, lengths and FLOPs of one training step."""

from dataclasses import dataclass, replace
from math import sqrt

from .. import spec as S
from ..recipe.averages import WeightAverage
from ..recipe.recipe import Recipe, sample_unit
from ..spec import flops as count
from ..spec.attention import head_dims
from ..spec.count import iterate_blocks, resnet_convolutions


@dataclass(frozen=True)
class Workload:
    """One step over all ranks, and the number of steps.

    Attributes:
        name: of the model or recipe.
        spec: the model.
        rows: sequences or images per step.
        length: tokens per row; of images, the pixels of a side.
        steps: of the run.
        target_length: tokens per row that the decoder of an encoder-decoder reads.
        scored: fraction of the positions whose logits are computed.
        visible: fraction of the input that the blocks process.
        precision: "fp32" or "bf16".
        moments: the optimiser's numbers per parameter.
        copies: number of averaged weights and reference models.
        references: number of copies that run a forward pass on every row.
        extra: other models that are trained in the same step.
        unit: "tokens" or "images".
        length_reason: the source of the length, for the report; "" if a recipe or an option sets
            it.
        any_rows: whether `rows` is a default, so that it may become a multiple of the number of
            readers.
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
        """Parameters of all trained models."""
        return sum(spec.parameter_count() for spec in (self.spec, *self.extra))

    @property
    def units_per_row(self) -> int:
        """Tokens per row, those of the target included; 1 for images."""
        return 1 if self.unit == "images" else self.length + (self.target_length or 0)

    @property
    def samples_read(self) -> int:
        """Tokens or images that the whole run reads."""
        return self.steps * self.rows * self.units_per_row

    def with_rows_for(self, readers: int) -> "Workload":
        """Return the workload with a multiple of `readers` rows per step, if `any_rows`."""
        if not self.any_rows:
            return self
        rows = readers * max(1, round(self.rows / readers))
        return replace(self, rows=rows, steps=max(1, round(self.steps * self.rows / rows)))


def workload_of_recipe(
    recipe: Recipe, auto: str = "bf16", row_length: int | None = None
) -> Workload:
    """Return the workload of a recipe with full rows.

    Not counted, because it depends on the data: noised queries of a detector, and a teacher.

    Args:
        recipe: the recipe.
        auto: the precision that "auto" selects on the planned device.
        row_length: tokens per row in a phase of its length schedule; tokens per step stay the same
            (default: the last phase).
    """
    unit = sample_unit(recipe.model)
    task = recipe.task
    spec = recipe.model
    both = spec.encoder is not None and spec.decoder is not None and not spec.queries
    length = row_length or recipe.batch.length
    rows = recipe.batch.rows_per_step() * recipe.batch.length // length
    if unit == "images":
        length = image_side(spec, recipe.batch.length) or image_size(spec)
    return Workload(
        recipe.name,
        spec,
        rows * task.sequences_per_row(),
        length,
        recipe.steps,
        target_length=max(1, round(length * task.decoder_ratio())) if both else None,
        scored=task.scored_fraction(),
        visible=task.visible_fraction(),
        precision=auto if recipe.precision == "auto" else recipe.precision,
        moments=recipe.optimiser.states_per_parameter,
        copies=int(holds_average(recipe.average)) + task.reference_models(),
        references=task.reference_models(),
        extra=task.extra_models(),
        unit=unit,
    )


def image_side(spec: S.Spec, length: int) -> int | None:
    """Return the side in pixels of an image with `length` cells, for models without a fixed size;
    None for the model's own size.
    """
    source = spec.source
    if not isinstance(source, S.ResNet):
        return None
    return round(sqrt(length)) * source.stride


def holds_average(average: WeightAverage | None) -> bool:
    return average is not None and average.holds_weights


def image_size(spec: S.Spec) -> int:
    """Return the side in pixels of the model's images, or a common default."""
    return spec.source.image_size if isinstance(spec.source, S.Patches) else 224


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
        """FLOPs of forward and backward, and of the references' forward."""
        return self.forward + self.backward + self.references

    def computed(self, checkpointing: bool, fused: bool = True) -> float:
        """Return the FLOPs that a device computes: blocks twice with checkpointing, and attention
        scores twice where a fused kernel does not store them (Dao et al. 2022, arXiv:2205.14135,
        section 3.1).
        """
        again = self.forward if checkpointing else 0.0
        return self.training + again + (self.scores / 2 if fused else 0.0)


def row_flops(workload: Workload) -> RowFlops:
    """The backward pass of a product is two products; pixels need no gradient."""
    total = RowFlops(0.0, 0.0, 0.0)
    for spec in (workload.spec, *workload.extra):
        forward = forward_flops(spec, workload)
        scores = score_flops(spec, workload)
        backward = 2 * forward - first_map_flops(spec, workload.length)
        total = RowFlops(total.forward + forward, total.backward + backward, total.scores + scores)
    return replace(total, references=workload.references * forward_flops(workload.spec, workload))


def forward_flops(spec: S.Spec, workload: Workload) -> float:
    """Return the FLOPs of one row, with logits at the scored positions only."""
    whole = spec.flops(1, workload.length, workload.target_length, workload.visible)
    if not isinstance(spec.head, S.LMHead):
        return whole
    tokens = workload.target_length or workload.length
    scored = round(tokens * workload.scored)
    return whole - spec.head.flops(spec, tokens) + spec.head.flops(spec, scored)


def input_tokens(spec: S.Spec, workload: Workload) -> count.InputTokens:
    return count.input_tokens(spec, workload.length, workload.target_length, workload.visible)


def score_flops(spec: S.Spec, workload: Workload) -> float:
    """Return the FLOPs of one row: q kᵀ and weights times v of every attention."""
    tokens = input_tokens(spec, workload)
    total = 0.0
    for placed in iterate_blocks(spec):
        width = placed.width
        side = tokens.side_for(placed)
        queries = tokens.read_by(spec, placed)
        total += attention_score_flops(placed.block.attention.inner, width, queries, queries, side)
        across = getattr(placed.block, "cross_attention", None)
        if across is not None:
            total += attention_score_flops(across.inner, width, queries, tokens.visible, side)
    return total


def attention_score_flops(inner: object, width: int, queries: int, keys: int, side: int) -> float:
    if not isinstance(inner, S.Attention):
        return 0.0
    key_dim, value_dim, _ = head_dims(inner, width)
    scores = inner.pattern.scores(queries, keys, side).scores
    return 2.0 * scores * inner.heads * (key_dim + value_dim)


def first_map_flops(spec: S.Spec, length: int) -> float:
    """Return the FLOPs of the pixel gradient, which no training step computes."""
    source = spec.source
    if isinstance(source, S.ResNet):
        _, (out, channels, kernel, _), stride = next(resnet_convolutions(source))
        return 2.0 * (-(-length // stride)) ** 2 * out * channels * kernel**2
    if not isinstance(source, S.Patches):
        return 0.0
    side = -(-length // source.patch_size)
    if source.stem is None:
        return 2.0 * side * side * spec.width * spec.patch_pixels
    pixels = side * source.patch_size
    once, twice = (
        source.stem.flops(images * source.channels, spec.width, pixels) for images in (1, 2)
    )
    return twice - once  # only the first map reads channels
