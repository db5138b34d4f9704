"""Activation memory from the spec: tensors stored for the backward pass."""

from dataclasses import dataclass

from .. import spec as S
from ..spec.attention import head_dims
from ..spec.count import iterate_blocks
from ..spec.feedforward import FeedForwardSpec
from .layout import Layout
from .recipe_workload import Workload, input_tokens

STATISTIC = 4  # bytes: norms and log-sums stay in fp32
# activations whose gradient needs the result, which the next map saves anyway
KEEPS_RESULT = ("relu", "tanh")


@dataclass(frozen=True)
class Storage:
    """How activations are stored.

    Attributes:
        number: bytes per number that matrix products read.
        stream: bytes of the residual stream, which norms read.
        mask: bytes of a dropout mask, per number.
        weights: whether the attention weights are stored, as without a fused kernel.
        tensor: devices that share a layer.
    """

    number: int
    stream: int
    mask: int = 2  # `kernels.keyed_random` draws 16 bits
    weights: bool = False
    tensor: int = 1


def storage_of(workload: Workload, layout: Layout, fused: bool = True) -> Storage:
    """Under FSDP the parameters, and so the stream, are in bf16;
    autocast leaves the stream in fp32."""
    size = 4 if workload.precision == "fp32" else 2
    stream = size if layout.splits_weights else 4
    return Storage(size, stream, weights=not fused, tensor=layout.tensor)


# One block


def block_bytes(
    block: S.Block | S.ParallelBlock, width: int, queries: float, keys: float, s: Storage
) -> float:
    """Return the bytes of one row of `queries` tokens; cross-attention reads `keys` tokens."""
    total = branch_bytes(block.attention, width, queries, queries, s)
    total += branch_bytes(block.feedforward, width, queries, queries, s)
    if isinstance(block, S.ParallelBlock):
        shared = block.attention.before is not None and block.feedforward.before is not None
        return total - shared * width * queries * s.stream / s.tensor  # both norms read the same x
    if block.cross_attention is not None:
        total += branch_bytes(block.cross_attention, width, queries, keys, s)
    return total


def branch_bytes(branch: S.Branch, width: int, queries: float, keys: float, s: Storage) -> float:
    """Follow the residual equation from the inside out. Between layers, a device of a tensor group
    has its share of the tokens; inside a layer it reads all.
    """
    norms = (branch.before, branch.out, branch.after)
    total = sum(norm_bytes(norm, width, s) for norm in norms) / s.tensor
    total += width * s.number  # what the inner maps read
    total += width * s.mask / s.tensor if branch.dropout else 0
    total += width * s.number / s.tensor if branch.layer_scale is not None else 0
    total *= queries
    if isinstance(branch.inner, S.Attention):
        return total + attention_bytes(branch.inner, width, queries, keys, s)
    return total + queries * feedforward_bytes(branch.inner, width, s)


def norm_bytes(norm: S.Norm | None, width: int, s: Storage) -> float:
    """Return the bytes of one token: the input and its statistics."""
    if norm is None:
        return 0.0
    return width * s.stream + STATISTIC * (2 if isinstance(norm, S.LayerNorm) else 1)


def attention_bytes(a: S.Attention, width: int, queries: float, keys: float, s: Storage) -> float:
    """Count queries, keys, values and mixed values, plus the weights, or a log-sum per query where
    the kernel recomputes them.
    """
    key_dim, value_dim, kv_heads = head_dims(a, width)
    heads = a.heads / s.tensor
    groups = max(kv_heads / s.tensor, 1)
    total = s.number * (
        queries * heads * (key_dim + value_dim) + keys * groups * (key_dim + value_dim)
    )
    if a.qk_norm is not None:
        statistic = STATISTIC if a.qk_norm.per == "head" else 0
        per_head = s.number * key_dim + statistic
        total += (queries * heads + keys * groups) * per_head
    # mixed values come in the layout of rotated queries: the next map copies them
    if a.rope is not None:
        total += s.number * queries * heads * value_dim
    if s.weights:
        return total + s.number * queries * keys * heads * (2 if a.dropout else 1)
    return total + STATISTIC * queries * heads


def feedforward_bytes(inner: object, width: int, s: Storage) -> float:
    """Return the bytes of one token, without the input that all maps share."""
    if isinstance(inner, S.GatedMLP):  # gate, activation(gate), up, their product
        numbers = 4.0 * inner.hidden
    elif isinstance(inner, S.MLP):
        twice = inner.activation not in KEEPS_RESULT or inner.dropout
        numbers = inner.hidden * (2 if twice else 1)
    elif isinstance(inner, S.MixtureOfExperts):
        each = width * s.tensor + feedforward_bytes(inner.expert, width, s) / s.number * s.tensor
        numbers = inner.top_k * each + inner.experts
    else:
        assert isinstance(inner, FeedForwardSpec)
        numbers = inner.activations(width)
    dropped = inner.hidden if isinstance(inner, S.MLP | S.GatedMLP) and inner.dropout else 0
    return (numbers * s.number + dropped * s.mask) / s.tensor


# The whole model


@dataclass(frozen=True)
class Activations:
    """Bytes of one row on one device."""

    blocks: float  # of all blocks
    inputs: float  # of all blocks: what each reads alone, which checkpointing stores
    largest: float  # of one block
    ends: float  # embedding, last norms, head; without logits
    logits: float


def row_activations(workload: Workload, s: Storage) -> Activations:
    total = Activations(0.0, 0.0, 0.0, 0.0, 0.0)
    for spec in (workload.spec, *workload.extra):
        each = model_activations(spec, workload, s)
        sums = [a + b for a, b in zip(vars(total).values(), vars(each).values(), strict=True)]
        total = Activations(*sums)
    return total


def model_activations(spec: S.Spec, workload: Workload, s: Storage) -> Activations:
    tokens = input_tokens(spec, workload)
    blocks = 0.0
    inputs = 0.0
    largest = 0.0
    for placed in iterate_blocks(spec):
        width = placed.width
        queries = tokens.read_by(spec, placed)
        here = block_bytes(placed.block, width, queries, tokens.visible, s)
        blocks += here
        inputs += queries * width * s.stream / s.tensor
        largest = max(largest, here)
    read = tokens.target if spec.decoder is not None else tokens.visible
    ends = sum(
        norm_bytes(getattr(stack, "norm", None), spec.width, s)
        for stack in (spec.encoder, spec.decoder)
    )
    ends = read * ends / s.tensor + tokens.whole * embedding_bytes(spec.source, spec, s)
    if isinstance(spec.target, S.Tokens | S.SharedTokens):
        ends += tokens.target * embedding_bytes(spec.target, spec, s)
    head, logits = head_bytes(spec, read, workload.scored, s)
    return Activations(blocks, inputs, largest, ends + head, logits)


def embedding_bytes(source: object, spec: S.Spec, s: Storage) -> float:
    """Return the bytes of one token: ids, norm and dropout mask; the pixels of a patch."""
    width = getattr(source, "embedding_dim", None) or spec.width
    total = norm_bytes(getattr(source, "norm", None), width, s)
    total += width * s.mask if getattr(source, "dropout", 0) else 0
    if isinstance(source, S.Tokens | S.SharedTokens):
        return total / s.tensor + 8
    return total + (4 * spec.patch_pixels if isinstance(source, S.Patches) else 0)


def head_bytes(spec: S.Spec, tokens: float, scored: float, s: Storage) -> tuple[float, float]:
    """Return the bytes of a head's input and of its logits, which are stored a second time as a
    gradient.
    """
    head = spec.head
    width = spec.head_input_width
    if not isinstance(head, S.LMHead):
        return 0.0, 0.0
    read = tokens * scored * width * s.number
    if head.transform is not None:
        read += (
            tokens
            * scored
            * (
                2 * spec.embedding_dim * s.number
                + norm_bytes(head.transform.norm, spec.embedding_dim, s)
            )
        )
    return read, tokens * scored * spec.vocab_size * s.number / s.tensor
