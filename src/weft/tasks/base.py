"""Base classes of tasks: preprocessing of samples (numpy, pure) and losses (torch, sums).

A task defines both as `Preprocess(task, context)` and `Loss(task, context)`. The preprocessing is
built first and raises ValueError if the model or the data do not fit the task.
"""

from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from ..data.batches.batching import shape_granularity
from ..data.batches.collate import count_tokens
from ..data.batches.samples import RowSamples, Samples
from ..data.shards.store import DataInfo, Store
from ..data.tokenizing.tokenizer import SpecialTokenFrame
from ..nn.initialisation import initialise_weights
from ..nn.kernels.cross_entropy import IGNORE_INDEX, cross_entropy
from ..nn.kernels.keyed_random import Keys, use_keys
from ..nn.layers.mixture_of_experts import MixtureOfExpertsLayer, router_losses
from ..nn.layers.roles import with_base_rate
from ..nn.layers.sequence import HiddenStates, sequence_keys
from ..nn.model import Model, build
from ..spec.spec import max_row_length
from ..support.console import count_of

ROUTER_TERMS = ("balance", "router_z")  # loss terms of every task whose model has experts
ArrayRow = dict[str, np.ndarray]
Batch = dict[str, Tensor]


class TaskContext(NamedTuple):
    """The arguments from which a task is built: model, data and seed."""

    spec: S.Spec
    data: DataInfo
    seed: int = 0
    dtype: torch.dtype = torch.float32
    teacher: Model | None = None
    model: Model | None = None  # a trained model; None: build a new one
    device: str = "cpu"  # of a new model; on meta, tensors have no storage


class LengthLimitedSamples:
    """Samples and the maximum length of their rows."""

    def __init__(self, samples: Samples, length: int) -> None:
        self.samples = samples
        self.length = length

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        short: np.ndarray = np.minimum(self.samples.lengths(indices), self.length)
        return short


class Preprocess:
    """Convert a sample into a row of a batch: a pure function of the sample's index and its random
    generator.

    A row may carry `tokens_document_ids`, 1, 2, 3, …: tokens attend only within their own document.
    Without them, a row is one document.
    """

    fields: dict[str, tuple[str, int]]  # ragged field -> its stream and padding value
    terms: tuple[str, ...] = ("token",)  # names of the loss terms, the keys of `loss_counts`
    same_every_epoch: bool = False  # use the random numbers of the first epoch in every epoch
    expert_stacks: dict[str, S.MixtureOfExperts] = {}  # stacks that have experts
    frame: SpecialTokenFrame | None = (
        None  # special tokens around the text; None: those of tokenizer.json
    )
    decoder_start: int | None = None  # first token of the decoder of an encoder-decoder

    def __init__(self, task: Any, context: TaskContext) -> None:
        self.task = task
        self.max_length = max_row_length(context.spec)
        self.expert_stacks = expert_stacks(context.spec)
        self.pad_id = context.data.special_tokens.get("pad", 0)

    def encoder_decoder_fields(self) -> dict[str, tuple[str, int]]:
        """Return the fields of an encoder and a decoder: the inputs of each, and the labels of the
        decoder.
        """
        return {
            "tokens": ("tokens", self.pad_id),
            "target": ("target", self.pad_id),
            "labels": ("target", IGNORE_INDEX),
        }

    def open_samples(
        self, store: Store, length: int, include_partial: bool = False
    ) -> LengthLimitedSamples:
        """Return samples for rows of `length`; with `include_partial`, also the last partial
        row.
        """
        if self.max_length is not None and length > self.max_length:
            raise ValueError(
                f"length = {length}: the model has {self.max_length} learned positions; use "
                f"shorter rows or a model with more positions"
            )
        return LengthLimitedSamples(self.read_samples(store, length, include_partial), length)

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Samples:
        """Read one sample per row; tasks may override this."""
        return RowSamples(store)

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        raise NotImplementedError

    def term_counts(self, batch: Any) -> dict[str, int]:
        """Return the number of labels of each loss term in a batch, without the terms of the
        routers.
        """
        return {self.terms[0]: len(batch["labels_at"])}

    def loss_counts(self, batch: Any) -> dict[str, int]:
        """Return the number of labels of each loss term in a batch. The routers count tokens of the
        stacks that have experts, or images.
        """
        if not self.expert_stacks:
            return self.term_counts(batch)
        streams = {stream for stream, _ in self.fields.values()}
        if "target" in streams:
            streams = {
                stream
                for stream, stack in (("tokens", "encoder"), ("target", "decoder"))
                if stack in self.expert_stacks
            }
        read = {name: field for name, field in self.fields.items() if field[0] in streams}
        passes = len(self.expert_stacks)
        if read:
            passes = 2 if "swapped" in read else 1
        return self.term_counts(batch) | dict.fromkeys(
            ROUTER_TERMS, passes * count_tokens(batch, read)
        )


class Loss(nn.Module):
    """The root module of training: loss = sum over terms of weight * (sum of scores / sum of
    counts), over all micro-batches and ranks.
    """

    model: Model  # what is exported
    splits_vocabulary: bool = (
        False  # whether only `Model.embed`, `Model.read` and `cross_entropy` see tables and logits
    )

    def __init__(
        self, task: Any, context: TaskContext, weights: dict[str, float] | None = None
    ) -> None:
        super().__init__()
        self.task = task
        self.model = context.model or build(
            context.spec, device=context.device, dtype=context.dtype, seed=context.seed
        )
        if (base_rate := task.base_rate()) is not None:
            self.start_at_base_rate(base_rate, context)
        self.weights = weights or {"token": 1.0}
        for layer in list(expert_stacks(context.spec).values())[:1]:  # all have the same weights
            self.weights = self.weights | dict(
                zip(ROUTER_TERMS, (layer.load_balance_weight, layer.router_z_weight), strict=True)
            )
        self.expert_load: list[
            Tensor
        ] = []  # (E,) per layer: tokens sent to each expert since it was last empty

    def start_at_base_rate(self, base_rate: float, context: TaskContext) -> None:
        """Start the bias of the model's output at the log-odds of the base rate, unless the model
        was trained before.
        """
        out = self.model.head.out
        assert isinstance(out, nn.Linear)
        with_base_rate(out, base_rate)
        if context.model is None and context.device != "meta":
            initialise_weights(self.model, context.spec, context.seed, {"head.out.bias"})

    def initialise_own_parameters(self, context: TaskContext) -> None:
        """Initialise the task's own parameters as specified by the model's spec. Call it after they
        are built.
        """
        self.to(context.dtype)
        parameters = {
            f"{path}.{name}"
            for path, part in self.named_children()
            if not isinstance(part, Model)
            for name, _ in part.named_parameters()
        }
        initialise_weights(self, context.spec, context.seed, parameters)

    def forward_outputs(self, batch: Batch) -> Any:
        raise NotImplementedError

    def loss_sums(self, answer: Any, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each loss term: here the cross entropy at the labels."""
        return {"token": cross_entropy(answer, selected_labels(batch))}

    def router_terms(self) -> dict[str, Tensor]:
        """Return the router losses of the last forward pass, averaged over the layers of each
        stack.
        """
        routing_of_stack = []
        image = not isinstance(self.model.spec.source, S.Tokens)
        for stack in (
            self.model.encoder,
            self.model.decoder,
            getattr(self.model.head, "stack", None),
        ):
            layers = (
                [m for m in stack.modules() if isinstance(m, MixtureOfExpertsLayer)]
                if isinstance(stack, nn.Module)
                else []
            )
            if layers:
                mask_BL = getattr(stack, "attention_mask_BL", None)
                ids_BL = getattr(stack, "document_ids_BL", None)
                routing_of_stack.append([router_losses(m, mask_BL, ids_BL, image) for m in layers])
        load = [layer.load_E for stack in routing_of_stack for layer in stack]
        self.expert_load = (
            [torch.add(*both) for both in zip(self.expert_load, load, strict=True)]
            if self.expert_load
            else load
        )
        balance, z = (
            sum(torch.stack([layer[i] for layer in stack]).mean() for stack in routing_of_stack)
            for i in (0, 1)
        )
        return dict(zip(ROUTER_TERMS, (balance, z), strict=True))  # type: ignore[arg-type]

    def all_sums(self, answer: Any, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of every loss term: those of the task and, where the model has experts,
        those of the routers.
        """
        return self.loss_sums(answer, batch) | (
            self.router_terms() if ROUTER_TERMS[0] in self.weights else {}
        )

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.all_sums(self.forward_outputs(batch), batch)

    def outputs_and_sums(self, batch: Batch) -> tuple[Any, dict[str, Tensor]]:
        """Return the outputs of the model, for predictions, and the loss terms."""
        outputs = self.forward_outputs(batch)
        return outputs, self.all_sums(outputs, batch)


class EncoderDecoderLoss(Loss):
    """The encoder reads `tokens`, the decoder reads `target` and predicts `labels`."""

    splits_vocabulary = True

    def forward_outputs(self, batch: Batch) -> Tensor:
        memory = self.model.encode(self.model.embed(batch["tokens"], **masks(batch)))
        sequence = self.model.decode(
            self.model.embed_target(batch["target"], memory, **masks(batch, "target")), memory
        )
        return logits_at(self.model, sequence, batch["labels_at"])


def selected_labels(batch: Batch, field: str = "labels") -> Tensor:
    """Return the labels that are scored, in the order of `logits_at`."""
    return batch[field].flatten()[batch[f"{field}_at"]]


def logits_at(model: Model, sequence: HiddenStates, at_T: Tensor) -> Tensor:
    """Return the logits at some positions of (B * L) alone, since most of the head's cost is the
    vocabulary. In training the output is padded to a friendly shape; only the first `len(at_T)`
    rows count.
    """
    x_TD = sequence.x_BLD.flatten(0, 1)
    keys = sequence_keys(sequence).key_BL.flatten() if model.training else None
    if len(at_T) != len(x_TD):
        at_T = (
            F.pad(at_T, (0, -len(at_T) % shape_granularity(len(at_T)))) if model.training else at_T
        )
        x_TD = x_TD[at_T]
        keys = None if keys is None else keys[at_T]
    with use_keys(None if keys is None else Keys(keys[None])):
        logits_1TV = model.read(HiddenStates(x_TD[None]))
    assert isinstance(logits_1TV, Tensor)
    return logits_1TV.squeeze(0)  # a view both ways; an index would copy the gradient


def concatenate_ids(*pieces: Any) -> np.ndarray:
    return np.concatenate([np.asarray(piece, np.int64) for piece in pieces])


def decoder_start(context: TaskContext, default: int) -> int:
    """Return the token that the decoder starts with: that of the model's spec, else `default`."""
    return (
        default
        if context.spec.special_tokens.decoder_start is None
        else context.spec.special_tokens.decoder_start
    )


def expert_stacks(spec: S.Spec) -> dict[str, S.MixtureOfExperts]:
    """Return the stacks that have mixture-of-experts layers, each with the first of them."""
    experts_of_stack: dict[str, S.MixtureOfExperts] = {}
    for name, stack in (
        ("encoder", spec.encoder),
        ("decoder", spec.decoder),
        ("head", getattr(spec.head, "stack", None)),
    ):
        if stack is None:
            continue
        blocks = sum(stack.stages, ()) if isinstance(stack, S.Pyramid) else stack.blocks
        layers = [
            b.feedforward.inner
            for b in blocks
            if isinstance(b.feedforward.inner, S.MixtureOfExperts)
        ]
        if layers:
            experts_of_stack[name] = layers[0]
    return experts_of_stack


# Checks


def text_room(length: int, special_tokens: int) -> int:
    """Return how many tokens of text fit into a row with its special tokens."""
    if length <= special_tokens:
        raise ValueError(
            f"length = {length} is too short for text and {special_tokens} special tokens; use "
            f"longer rows"
        )
    return length - special_tokens


def check_model(
    task: Any,
    context: TaskContext,
    *,
    encoder: bool = False,
    decoder: bool = False,
    head: type | None = S.LMHead,
) -> None:
    """Raise ValueError for a model without the named parts, or with a vocabulary smaller than the
    tokenizer's.
    """
    s = context.spec
    name = type(task).__name__
    if not isinstance(s.source, S.Tokens):
        raise ValueError(f"{name} reads tokens; the model reads {type(s.source).__name__}")
    if (s.encoder is not None, s.decoder is not None) != (encoder, decoder):
        kind = {
            (True, True): "an encoder and a decoder",
            (True, False): "an encoder and no decoder",
            (False, True): "a decoder and no encoder",
        }
        raise ValueError(
            f"{name} needs a model with {kind[encoder, decoder]}; this model has "
            f"{kind[s.encoder is not None, s.decoder is not None]}"
        )
    if head is not None and not isinstance(s.head, head):
        raise ValueError(
            f"{name} needs a {head.__name__} head, not {type(s.head).__name__}; use replace(model, "
            f"head={head.__name__}(…))"
        )
    sizes = [s.vocab_size] if isinstance(s.target, S.Tokens) else []
    if (context.data.vocab_size or 0) > min([s.source.vocab_size, *sizes]):
        raise ValueError(
            f"the tokenizer has {context.data.vocab_size} tokens, the model "
            f"{min([s.source.vocab_size, *sizes])}; "
            "set the vocabulary size of the model's source to that of the tokenizer"
        )


def check_rows(task: Any, context: TaskContext) -> None:
    """Raise ValueError for data with rows that the task does not read."""
    if not isinstance(context.data.rows, task.row_schemas):
        schemas = " or ".join(schema.__name__ for schema in task.row_schemas)
        raise ValueError(
            f"{type(task).__name__} reads rows of {schemas}, not of "
            f"{type(context.data.rows).__name__}"
        )


class Masks(TypedDict, total=False):
    attention_mask: Tensor
    document_ids: Tensor


def masks(batch: Batch, stream: str = "tokens") -> Masks:
    """Return the arguments of `Model.embed` that mask padding or separate documents."""
    arguments: Masks = {}
    if f"{stream}_attention_mask" in batch:
        arguments["attention_mask"] = batch[f"{stream}_attention_mask"]
    if f"{stream}_document_ids" in batch:
        arguments["document_ids"] = batch[f"{stream}_document_ids"]
    return arguments


def special_ids(task: Any, context: TaskContext, *names: str) -> tuple[int, ...]:
    """Return the ids of special tokens; raise ValueError if the tokenizer lacks one."""
    missing = [name for name in names if name not in context.data.special_tokens]
    if missing:
        raise ValueError(
            f"{type(task).__name__} needs the {' and '.join(missing)} token, which the tokenizer "
            "lacks; "
            "prepare the data with a tokenizer that has special_tokens=True"
        )
    return tuple(context.data.special_tokens[name] for name in names)


def has_token_types(spec: S.Spec) -> bool:
    return isinstance(spec.source, S.Tokens) and (spec.source.token_types or 1) > 1


def check_head(task: Any, context: TaskContext, outputs: int | None = None) -> None:
    """Raise ValueError unless the head is the task's and has one output per label of the data."""
    s = context.spec
    name = type(task).__name__
    head = task.head
    if not isinstance(s.head, head):
        raise ValueError(
            f"{name} needs a {head.__name__} head, not {type(s.head).__name__}; use replace(model, "
            f"head={head.__name__}(…))"
        )
    labels = context.data.labels
    if outputs is None and not labels:
        raise ValueError(
            f"{name} needs labels, but the data have none; name the label column and prepare the "
            f"data again"
        )
    expected = len(labels or ()) if outputs is None else outputs
    num_labels = getattr(s.head, "num_labels", expected)
    if num_labels != expected:
        why = (
            f"the data have {expected} labels"
            if outputs is None
            else f"{name} reads {count_of(expected, 'output')}"
        )
        raise ValueError(
            f"{why}, the head {num_labels} outputs; use replace(head, num_labels={expected}), or "
            f"--set model.head.num_labels={expected}"
        )
    names = getattr(s.head, "labels", None)
    if outputs is None and names is not None and tuple(names) != tuple(labels or ()):
        raise ValueError(
            f"the head's labels {names} are not the data's {tuple(labels or ())}"[:200]
            + "; put them in the same order"
        )


def encode_batch(model: Model, batch: Batch, stream: str = "tokens") -> HiddenStates:
    """Run the model without its head, on images or on the tokens of a stream."""
    if "image" in batch:
        sequence = model.embed(batch["image"].to(next(model.parameters()).dtype))
    else:
        segments = batch.get("segments") if has_token_types(model.spec) else None
        sequence = model.embed(batch[stream], token_type_ids=segments, **masks(batch, stream))
    return model.encode(sequence) if model.encoder is not None else model.decode(sequence)
