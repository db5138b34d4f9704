"""The design space: every Transformer of the textbook table is one value of `Model`.

A choice is a sum type: the union at a field lists what may stand there. Nothing here imports torch.
"""
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from .values import at, from_json, from_plain, leaves, put, to_json, to_plain, value

__all__ = ["Activation", "Alibi", "Attention", "Backbone", "Block", "Boxes", "Branch", "Buckets", "Causal", "Classes",
           "Dense", "Experts", "Features", "Full", "Gated", "Inner", "LayerNorm", "LayerScale", "Layers", "Learned", "Learned2D",
           "Linformer", "Model", "Norm", "Normal", "Parallel", "Patches", "Pixels", "Pyramid", "QKNorm", "Queries", "RMSNorm", "Rotary",
           "Shared", "Sine2D", "Sinusoid", "Spans", "Special", "Stack", "Start", "Stretch", "T5Start", "Tags", "Tokens", "Transform",
           "Vocabulary", "Window", "Windows", "Xavier", "at", "deep", "deepnorm", "from_json", "from_plain", "leaves",
           "post", "pre", "put", "replace", "sandwich", "to_json", "to_plain", "with_dropout"]

Count = Annotated[int, Field(gt=0, lt=1 << 48)]             # beyond that nothing is counted, and products would leave float64's range
Natural = Annotated[int, Field(ge=0, lt=1 << 48)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]


# Norms

@value
class LayerNorm:
    """(x - mean) / deviation (Ba et al. 2016, arXiv:1607.06450)."""
    eps: Positive = 1e-5
    bias: bool = True


@value
class RMSNorm:
    """x / root mean square (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    eps: Positive = 1e-6


Norm = LayerNorm | RMSNorm


# Positions. Four doors: at the input, at query and key, by rotation, on the score.

@value
class Sinusoid:
    """Sines and cosines of the position (Vaswani et al. 2017, section 3.5); Marian writes all sines first."""
    layout: Literal["interleaved", "halves"] = "interleaved"


@value
class Learned:
    """One vector a position; the table's first `offset` rows belong to no position (RoBERTa, BART: 2)."""
    count: Count
    offset: Natural = 0


@value
class Learned2D:
    """One half-width vector a row and one a column, side by side."""
    count: Count = 50


@value
class Sine2D:
    """Sinusoids of row and column, side by side; fixed (MAE, arXiv:2111.06377; DETR, arXiv:2005.12872, appendix A.4).

    `grid` counts cells from 0 and is kept as a table in the file; `unit` stretches the visible image to 2π."""
    scale: Literal["grid", "unit"] = "grid"


@value
class Stretch:
    """Llama 3.1's slowing of low rotary frequencies for longer contexts (arXiv:2407.21783)."""
    factor: Positive
    low: Positive = 1.0
    high: Positive = 4.0
    original: Count = 8192


@value
class Rotary:
    """Rotate pairs of q and k by angles that grow with the position (Su et al. 2021, arXiv:2104.09864)."""
    theta: Positive = 10_000.0
    fraction: Share = 1.0                  # the share of the head width that turns
    stretch: Stretch | None = None


@value
class Buckets:
    """A learned scalar per head and log-spaced distance (Raffel et al. 2020, arXiv:1910.10683, section 2.1)."""
    count: Count = 32
    distance: Count = 128
    sided: bool = True                     # tell future from past: half of the buckets each


@value
class Alibi:
    """A fixed slope per head times the distance (Press et al. 2021, arXiv:2108.12409)."""


# Attention: who looks at whom

@value
class Full:
    """Every query sees every key."""


@value
class Causal:
    """A query sees itself and what came before."""


@value
class Window:
    """A query at i sees keys from i - before to i + after (Beltagy et al. 2020, arXiv:2004.05150)."""
    before: Natural
    after: Natural


@value
class Windows:
    """Square windows on the image grid, shifted by `shift`, with a learned bias per offset (Liu et al. 2021, arXiv:2103.14030)."""
    size: Count = 7
    shift: Natural = 0
    bias: bool = True


@value
class Linformer:
    """Keys and values projected along the length to `rank` rows (Wang et al. 2020, arXiv:2006.04768)."""
    length: Count
    rank: Count


@value
class QKNorm:
    """A norm on the queries and one on the keys, before they are rotated (Dehghani et al. 2023, arXiv:2302.05442, section 2).

    `over` says what is normalised: each head by itself, with one gain for all heads (Qwen3), or the whole projection (OLMo 2)."""
    norm: LayerNorm | RMSNorm = RMSNorm()
    over: Literal["head", "projection"] = "head"


@value
class Attention:
    """softmax(Q Kᵀ · scale + bias + mask) V in `heads` groups (Vaswani et al. 2017, section 3.2).

    With a `softcap` c, s = Q Kᵀ · scale becomes c · tanh(s / c) before bias and mask (Gemma 2, arXiv:2408.00118, section 2)."""
    heads: Count
    groups: Count | None = None              # key/value heads; None: one a query head; 1: multi-query
    key_width: Count | None = None           # d_k; None: width / heads
    value_width: Count | None = None         # d_v; None: d_k
    pattern: Full | Causal | Window | Windows | Linformer = Full()
    rotary: Rotary | None = None
    score: Buckets | Alibi | None = None   # this block's own; `Stack.score` is shared by its blocks
    scale: Number | None = None             # None: d_k ** -0.5
    softcap: Positive | None = None
    qk_norm: QKNorm | None = None
    bias: bool = True                      # on q, k and v
    out_bias: bool = True
    dropout: Rate = 0.0                   # on the weights


# Feed-forward

Activation = Literal["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "swish", "tanh"]


@value
class Dense:
    """down(activation(up(x)))."""
    hidden: Count
    activation: Activation = "gelu"
    bias: bool = True
    dropout: Rate = 0.0                   # on the hidden layer


@value
class Gated:
    """down(activation(gate(x)) * up(x)): SwiGLU with swish, GeGLU with gelu (Shazeer 2020, arXiv:2002.05202)."""
    hidden: Count
    activation: Activation = "swish"
    bias: bool = True
    dropout: Rate = 0.0


@value
class Experts:
    """A gate sends each token to the `chosen` best of `count` experts (Shazeer et al. 2017, arXiv:1701.06538)."""
    count: Count
    chosen: Count
    expert: Dense | Gated
    gates: Literal["chosen", "all"] = "chosen"    # softmax over the chosen (Mixtral) or over all (Switch)
    balance: NonNegative = 0.01                   # weight of the load-balancing loss (Switch, arXiv:2101.03961, section 2.2)
    z_loss: NonNegative = 1e-3                    # weight of the router z-loss (ST-MoE, arXiv:2202.08906, section 2.2)


# Blocks and stacks

Inner = Attention | Dense | Gated | Experts


@value
class LayerScale:
    """A learned gain per channel on a branch's output, small at first (Touvron et al. 2021, arXiv:2103.17239, section 2)."""
    initial: Positive = 1e-5


@value
class Branch:
    """One residual branch: x <- after(x * alpha + drop(layer_scale(out(inner(before(x))))))."""
    inner: Attention | Dense | Gated | Experts
    before: LayerNorm | RMSNorm | None = None
    out: LayerNorm | RMSNorm | None = None
    layer_scale: LayerScale | None = None
    after: LayerNorm | RMSNorm | None = None
    alpha: Positive = 1.0
    gain: Positive = 1.0                      # on the initial weights of value, out and feed-forward (DeepNorm's beta)
    dropout: Rate = 0.0
    skip: Rate = 0.0                      # stochastic depth (Huang et al. 2016, arXiv:1603.09382)


def pre(norm: Norm, inner: Inner, **more: Any) -> Branch:
    return Branch(before=norm, inner=inner, **more)


def post(norm: Norm, inner: Inner, **more: Any) -> Branch:
    return Branch(inner=inner, after=norm, **more)


def sandwich(norm: Norm, inner: Inner, **more: Any) -> Branch:
    return Branch(before=norm, inner=inner, out=norm, **more)


def deep(norm: Norm, inner: Inner, scales: tuple[float, float], **more: Any) -> Branch:
    return Branch(inner=inner, after=norm, alpha=scales[0], gain=scales[1], **more)


def deepnorm(part: Literal["encoder", "decoder"], encoder: int = 0, decoder: int = 0) -> tuple[float, float]:
    """DeepNorm's alpha and beta from the depths (Wang et al. 2022, arXiv:2203.00555, table 1)."""
    depth = encoder if part == "encoder" else decoder
    if part not in ("encoder", "decoder") or depth < 1:
        raise ValueError(f"deepnorm({part!r}, encoder={encoder}, decoder={decoder}): name 'encoder' or 'decoder' and give its depth")
    if not (encoder and decoder):
        return (2 * depth) ** 0.25, (8 * depth) ** -0.25
    if part == "encoder":
        return 0.81 * (encoder ** 4 * decoder) ** 0.0625, 0.87 * (encoder ** 4 * decoder) ** -0.0625
    return (3 * decoder) ** 0.25, (12 * decoder) ** -0.25


@value
class Block:
    """Branches one after the other."""
    attention: Branch
    feedforward: Branch
    cross: Branch | None = None            # looks at the encoder's output


@value
class Parallel:
    """Both branches read the same x and add to it (GPT-J; GPT-NeoX, arXiv:2204.06745, section 2.1)."""
    attention: Branch
    feedforward: Branch


@value
class Stack:
    """Blocks in order; a depth pattern is a comprehension."""
    blocks: tuple[Block | Parallel, ...]
    norm: LayerNorm | RMSNorm | None = None
    score: Buckets | Alibi | None = None


@value
class Pyramid:
    """Stages on an image grid; between two of them 2×2 neighbours merge and the width doubles (Swin)."""
    stages: tuple[tuple[Block | Parallel, ...], ...]
    norm: LayerNorm | RMSNorm | None = None
    merge: LayerNorm | RMSNorm = LayerNorm()


# Inputs

@value
class Tokens:
    """Rows of a table, plus positions, plus segments."""
    vocabulary: Count
    width: Count | None = None               # narrower than the model: projected up (ELECTRA)
    positions: Sinusoid | Learned | None = None
    segments: Count | None = None
    scale: Number = 1.0                     # on the rows (2017: the root of the width)
    norm: LayerNorm | RMSNorm | None = None
    dropout: Rate = 0.0


@value
class Shared:
    """The decoder reads the source's table, with positions and norm of its own."""
    positions: Sinusoid | Learned | None = None
    scale: Number = 1.0
    norm: LayerNorm | RMSNorm | None = None
    dropout: Rate = 0.0


@value
class Patches:
    """Square patches, one linear map, extra tokens in front (Dosovitskiy et al. 2020, arXiv:2010.11929)."""
    image: Count
    patch: Count
    channels: Count = 3
    tokens: tuple[Literal["class", "distillation"], ...] = ("class",)
    positions: Learned | Learned2D | Sine2D | None = None
    norm: LayerNorm | RMSNorm | None = None
    dropout: Rate = 0.0


@value
class Backbone:
    """A ResNet with frozen batch norm, projected to the model's width; positions at every attention (DETR, G6)."""
    depths: tuple[Count, ...] = (3, 4, 6, 3)
    widths: tuple[Count, ...] = (256, 512, 1024, 2048)
    stem: Count = 64
    channels: Count = 3
    positions: Sine2D | Learned2D | None = Sine2D(scale="unit")
    door: Literal["attention", "input"] = "attention"


@value
class Queries:
    """A decoder input that is learned, not read: one vector an object, at every attention (DETR)."""
    count: Count = 100


# Heads

@value
class Transform:
    """Dense, activation, norm: what stands before some heads."""
    activation: Activation = "gelu"
    norm: LayerNorm | RMSNorm | None = None
    bias: bool = True


@value
class Vocabulary:
    """A score per token of the vocabulary; tied: the rows of the input table. With a `softcap` c, c · tanh(score / c)."""
    tied: bool = True
    bias: Literal["none", "trained", "stored"] = "none"
    transform: Transform | None = None
    scale: Number = 1.0
    softcap: Positive | None = None


@value
class Classes:
    """A score per class from one vector a sequence."""
    outputs: Count
    pool: Literal["first", "last", "mean", "tokens"] = "first"    # tokens: a classifier each, averaged (DeiT)
    transform: Transform | None = None
    dropout: Rate = 0.0
    bias: bool = True
    labels: tuple[str, ...] | None = None


@value
class Tags:
    """Scores at every position: a tag each, or replaced or not."""
    outputs: Count
    transform: Transform | None = None
    dropout: Rate = 0.0
    labels: tuple[str, ...] | None = None


@value
class Spans:
    """How well an answer starts and ends at each position (BERT, section 4.2)."""
    transform: Transform | None = None


@value
class Boxes:
    """A class (the last means no object) and a box per query (DETR, section 3.2)."""
    classes: Count
    layers: Count = 3
    labels: tuple[str, ...] | None = None


@value
class Pixels:
    """Mask tokens join the visible patches, a light stack of its own width guesses all pixels (MAE, arXiv:2111.06377)."""
    width: Count
    stack: Stack


@value
class Features:
    """The vectors themselves, and one pooled from the first where there is a transform."""
    transform: Transform | None = None


@value
class Layers:
    """What a head reads of a stack, where not its output: the outputs of several layers, numbered as transformers' hidden_states, 0 the
    embeddings, -1 the last (BERT, arXiv:1810.04805, section 5.3 and table 7). `weighted`: a trained softmax over the layers."""
    layers: Annotated[tuple[int, ...], Field(min_length=1)]
    combine: Literal["concat", "sum", "weighted"] = "concat"


# Initialisation

@value
class Normal:
    """Normal weights, cut at `cut` deviations; the maps that join the residual by 1/√(2·depth) (GPT-2)."""
    std: Positive = 0.02
    cut: Positive | None = None
    by_depth: bool = False


@value
class Xavier:
    """Uniform by fan-in and fan-out (Glorot and Bengio 2010); embeddings normal at width ** -0.5."""


@value
class T5Start:
    """Each map by its fan-in, the score unscaled (Raffel et al. 2020)."""
    factor: Positive = 1.0


Start = Normal | Xavier | T5Start


@value
class Special:
    """Token ids that have a job."""
    pad: Natural | None = None
    begin: Natural | None = None
    end: Natural | tuple[Natural, ...] | None = None
    start: Natural | None = None               # what the decoder reads first


@value
class Model:
    """source -> encoder and/or decoder -> head; a decoder alone reads the source, else the target."""
    width: Count
    source: Tokens | Patches | Backbone
    head: Vocabulary | Classes | Tags | Spans | Boxes | Pixels | Features
    encoder: Stack | Pyramid | None = None
    decoder: Stack | None = None
    target: Tokens | Shared | Queries | None = None
    start: Normal | Xavier | T5Start = Normal()
    special: Special = Special()
    features: Layers | None = None           # what the head reads; None: the last stack's output
    context: Count | None = None             # the length it was trained for, where no position table says it

    def __post_init__(self) -> None:
        from .check import problems
        for path, problem in problems(self):
            raise ValueError(f"{path}: {problem}")

    def parameters(self) -> int:
        from .count import total
        return total(self)

    def flops(self, batch: int = 1, length: int | None = None, target: int | None = None) -> int:
        from .count import flops
        return flops(self, batch, length, target)

    def json(self) -> str:
        return to_json(self)


def with_dropout(model: Model, rate: float) -> Model:
    """The same model with every dropout at `rate`; skipped branches stay as they are."""
    def change(plain: Any) -> Any:
        if isinstance(plain, dict):
            return {name: rate if name == "dropout" else change(part) for name, part in plain.items()}
        return [change(part) for part in plain] if isinstance(plain, list) else plain
    changed: Model = from_plain(change(to_plain(model)))
    return changed


def named(s: Model, labels: tuple[str, ...] | list[str] | None) -> Model:
    """A head that has no names for its classes yet takes these."""
    if labels is None or getattr(s.head, "labels", ()) is not None or len(labels) != getattr(s.head, "outputs", len(labels)):
        return s
    return replace(s, head=replace(s.head, labels=tuple(labels)))  # type: ignore[arg-type]
