"""The model: embed, encode, decode and read, without a loss."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import spec as S
from ..support.python_messages import python_errors
from ..support.registry import implementation, resolve
from .cache import KVCache
from .detection import DetectionDecoder
from .heads import Detections, LayerMixLayer, Pooled
from .initialisation import initialise_weights
from .inputs import check_beside, check_ids, check_images, lookup_error
from .kernels.masks import resolve_masks
from .layers import embedding
from .layers.images.object_queries import AnchorQueriesLayer, ObjectQueriesLayer
from .layers.measure import SkipTorchInit
from .layers.roles import Part, with_scope
from .layers.sequence import HiddenStates
from .stack import PyramidLayer, StackLayer, declare_layers_above

Output = Tensor | Detections | Pooled
DECODING_OPTIONS = {"sampling", "eos_ids", "decoder_inputs", "seeds"}


class Model(nn.Module):
    """embed -> encode and/or decode -> read. A tied head uses the embedding's table itself, not a
    copy.
    """

    def __init__(self, spec: S.Spec) -> None:
        super().__init__()
        self.spec = spec
        # The family of its published names and the source of its weights, set by weft.interop.
        self.family: str | None = None
        self.origin: Path | None = None
        self.source = build_input(spec)
        self.target = build_target(spec)
        self.encoder = build_encoder(spec)
        self.decoder = build_decoder(spec)
        self.layer_mix = LayerMixLayer(spec.layer_mix) if spec.layer_mix is not None else None
        head: nn.Module = implementation(spec.head)(spec.head, spec)
        self.head = with_scope(head, part=Part.HEAD)
        declare_layers_above(
            [part for part in (self.source, self.target) if part is not None],
            [stack for stack in (self.encoder, self.decoder) if stack is not None],
        )

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the weights."""
        return next(self.parameters()).dtype

    @property
    def body(self) -> list[nn.Module]:
        """Return the parameters outside the head and the layer mix."""
        parts = (self.source, self.target, self.encoder, self.decoder)
        return [part for part in parts if part is not None]

    @property
    def token_embedding_VD(self) -> Tensor:
        """The token table that the decoder reads and a tied head writes."""
        owner = self.target if isinstance(self.spec.target, S.Tokens) else self.source
        weight = owner.tokens.weight  # type: ignore[union-attr]
        assert isinstance(weight, Tensor)
        return weight

    def embed(
        self,
        inputs: Tensor,
        *,
        attention_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> HiddenStates:
        """Embed the source.

        Args:
            inputs: ids (B, L) or images (B, C, rows, columns).
            attention_mask: (B, L), False or 0 for padding at either end of a row (default: no
                padding); for a ResNet, the visible pixels.
            document_ids: (B, L), whole numbers; tokens attend only within their own document, and
                document 0 is padding (default: one document per row).
            token_type_ids: (B, L), the segment of each token (default: 0).
            cache: keys and values of earlier tokens (default: none).

        Raises:
            ValueError: for inputs of the wrong type or shape, ids outside the vocabulary, and
                inputs that this model does not support.
        """
        if isinstance(self.spec.source, S.Tokens):
            check_ids("inputs", inputs)
            check_beside("attention_mask", attention_mask, inputs)
            check_beside("document_ids", document_ids, inputs)
            check_beside("token_type_ids", token_type_ids, inputs)
        else:
            check_images(inputs, self.spec.source)
        mask, documents = masks = resolve_masks(attention_mask, document_ids)
        if isinstance(self.source, embedding.TokenEmbedding):
            position = None if cache is None else cache.reserve(inputs.shape[1], *masks)
            assert self.source.tokens is not None
            try:
                hidden_states: HiddenStates = self.source(
                    inputs, self.source.tokens.weight, *masks, token_type_ids, position
                )
            except IndexError as error:
                segments = getattr(self.spec.source, "token_types", None) or 0
                raise (
                    lookup_error("inputs", inputs, len(self.source.tokens.weight))
                    or lookup_error("token_type_ids", token_type_ids, segments)
                    or error
                ) from None
        elif documents is not None:
            raise ValueError("images have no documents; set document_ids to None")
        elif isinstance(self.source, embedding.ResNetEmbedding):
            hidden_states = self.source(inputs, mask)
        else:
            if mask is not None:
                raise ValueError("patches have no padding; set attention_mask to None")
            hidden_states = self.source(inputs)
        if token_type_ids is not None and getattr(self.source, "segments", None) is None:
            raise ValueError("this model has no token types; set token_type_ids to None")
        return hidden_states

    def embed_target(
        self,
        targets: Tensor | None,
        memory: HiddenStates,
        *,
        attention_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> HiddenStates:
        """Embed the input of a decoder after an encoder: target ids, or the object queries."""
        masks = resolve_masks(attention_mask, document_ids)
        if isinstance(self.target, ObjectQueriesLayer | AnchorQueriesLayer):
            hidden_states: HiddenStates = self.target(len(memory.x_BLD), memory.x_BLD.dtype)
            return hidden_states
        if self.target is None or targets is None:
            raise ValueError(
                "an encoder-decoder model needs targets; give their ids"
                if self.target
                else "this model has no target; set targets to None"
            )
        check_ids("targets", targets)
        check_beside("attention_mask", attention_mask, targets)
        check_beside("document_ids", document_ids, targets)
        position = None if cache is None else cache.reserve(targets.shape[1], *masks)
        table_VD = self.token_embedding_VD
        try:
            hidden_states = self.target(targets, table_VD, *masks, None, position)
        except IndexError as error:
            raise (lookup_error("targets", targets, len(table_VD)) or error) from None
        return hidden_states

    def encode(self, sequence: HiddenStates) -> HiddenStates:
        if self.encoder is None:
            raise ValueError("this model has no encoder; use decode")
        at = getattr(self.spec.source, "positions_at", "attention")
        place_BPD = sequence.query_key_position_BLD
        if at == "decoder-attention":
            sequence = replace(sequence, query_key_position_BLD=None)
        hidden_states: HiddenStates = self.encoder(sequence)
        if at in ("encoder-attention", "decoder-attention"):
            place_BPD = place_BPD if at == "decoder-attention" else None
            hidden_states = replace(hidden_states, query_key_position_BLD=place_BPD)
        if self.layer_mix is None or self.decoder is not None:
            return hidden_states
        mixed: HiddenStates = self.layer_mix(hidden_states)
        return mixed

    def decode(
        self,
        sequence: HiddenStates,
        memory: HiddenStates | None = None,
        *,
        cache: KVCache | None = None,
    ) -> HiddenStates:
        if self.decoder is None:
            raise ValueError("this model has no decoder; use encode")
        hidden_states: HiddenStates
        if isinstance(self.decoder, DetectionDecoder):
            hidden_states = self.decoder(sequence, memory, self.target, self.head)
        else:
            hidden_states = self.decoder(sequence, memory, cache)
        return hidden_states if self.layer_mix is None else self.layer_mix(hidden_states)

    def read(self, sequence: HiddenStates) -> Output:
        output: Output = (
            self.head(sequence, self.token_embedding_VD)
            if self.spec.head.reads_table
            else self.head(sequence)
        )
        return output

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        decoder_document_ids: Tensor | None = None,
    ) -> Output:
        """Embed, encode and decode, and apply the head.

        Args:
            inputs: ids (B, L) or images (B, C, rows, columns).
            targets: ids (B, M) for a decoder after an encoder (default: none).
            attention_mask, document_ids, token_type_ids: of the inputs, as in `embed`.
            decoder_attention_mask, decoder_document_ids: of the targets.

        Returns:
            The head's output: logits (B, L, V) of an LM head, (B, classes) of a classifier.
        """
        of_targets = (targets, decoder_attention_mask, decoder_document_ids)
        if any(t is not None for t in of_targets) and not isinstance(
            self.target, embedding.TokenEmbedding
        ):
            raise ValueError("this model reads no targets; set them and their masks to None")
        if targets is not None and len(targets) != len(inputs):
            raise ValueError(f"{len(targets)} targets for {len(inputs)} inputs; give one per input")
        sequence = self.embed(
            inputs,
            attention_mask=attention_mask,
            document_ids=document_ids,
            token_type_ids=token_type_ids,
        )
        if self.encoder is not None:
            sequence = self.encode(sequence)
            if self.decoder is not None:
                target = self.embed_target(
                    targets,
                    sequence,
                    attention_mask=decoder_attention_mask,
                    document_ids=decoder_document_ids,
                )
                sequence = self.decode(target, sequence)
        else:
            sequence = self.decode(sequence)
        return self.read(sequence)

    @python_errors()
    def generate(
        self, input_ids: Tensor | Sequence[Sequence[int]], *, max_new_tokens: int, **options: Any
    ) -> list[list[int]]:
        """Generate tokens with the decoder, greedily by default.

        Args:
            input_ids: prompts as a tensor (B, L), or as lists of ids of any lengths.
            max_new_tokens: the maximum number of tokens to generate per prompt.
            options: fields of `weft.Sampling`, such as temperature=0.8, or all of them as
                `sampling`; `eos_ids`, `decoder_inputs` and `seeds` of
                `weft.generate.decoding.generate`.

        Returns:
            The new tokens of each prompt, without the prompt.

        Raises:
            ValueError: for prompts that are not rows of ids in the vocabulary, and for an unknown
                option.
        """
        if self.decoder is None:
            raise ValueError(
                "this model has no decoder and cannot generate; use fill for a masked language "
                "model, embed for an encoder"
            )
        rows = input_ids.tolist() if isinstance(input_ids, Tensor) else input_ids
        if not all(isinstance(row, Sequence) and not isinstance(row, str) for row in rows):
            raise ValueError(
                f"input_ids must be a tensor (B, L) or a list of rows of ids, not {input_ids!r}"[
                    :200
                ]
            )
        of_decoding = {name: options.pop(name) for name in DECODING_OPTIONS & options.keys()}
        sampling = resolve("weft.generate.sampling:sampling_from")(
            options, of_decoding.pop("sampling", None)
        )
        decode = resolve("weft.generate.decoding:generate")
        generated = decode(
            self, rows, max_new_tokens=max_new_tokens, sampling=sampling, **of_decoding
        )
        return [row.tokens for row in generated]

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """Return a cache of `room` tokens, prompt included, for `batch` rows."""
        return KVCache(self.spec, batch, capacity, self.dtype, self.device)


def build_input(spec: S.Spec) -> nn.Module:
    if isinstance(spec.source, S.Tokens):
        table_width = spec.source.embedding_dim or spec.width
        return embedding.TokenEmbedding(spec.source, table_width, spec.width)
    if isinstance(spec.source, S.Patches):
        return embedding.PatchEmbedding(spec.source, spec.width)
    return embedding.ResNetEmbedding(spec.source, spec.width)


def build_target(spec: S.Spec) -> nn.Module | None:
    if isinstance(spec.target, S.ObjectQueries):
        return ObjectQueriesLayer(spec.target, spec.width)
    if isinstance(spec.target, S.AnchorQueries):
        return AnchorQueriesLayer(spec.target, spec.width)
    if spec.target is None:
        return None
    return embedding.TokenEmbedding(spec.target, spec.embedding_dim, spec.width)


def build_encoder(spec: S.Spec) -> StackLayer | PyramidLayer | None:
    if spec.encoder is None:
        return None
    if isinstance(spec.encoder, S.Pyramid):
        return PyramidLayer(spec.encoder, spec.width)
    layers = () if spec.decoder or spec.layer_mix is None else spec.layer_mix.layers
    encoder: StackLayer = implementation(spec.encoder)(spec.encoder, spec.width, layers)
    return encoder


def build_decoder(spec: S.Spec) -> StackLayer | None:
    if spec.decoder is None:
        return None
    layers = () if spec.layer_mix is None else spec.layer_mix.layers
    # A user-defined stack is unchanged.
    if spec.queries and type(spec.decoder) is S.Stack:
        return DetectionDecoder(spec.decoder, spec.width, layers)
    decoder: StackLayer = implementation(spec.decoder)(spec.decoder, spec.width, layers)
    return decoder


def build_on_meta(spec: S.Spec) -> Model:
    """Return the model of a spec on the meta device, without allocated memory."""
    with torch.device("meta"), SkipTorchInit():
        return Model(spec)


def build(
    spec: S.Spec,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Model:
    """Return the initialised model of a spec; on the meta device, only its shapes."""
    if not isinstance(spec, S.Spec):
        raise ValueError(f'build needs a spec, such as weft.bert("base"), not {spec!r}'[:200])
    model = build_on_meta(spec).to(dtype)
    if torch.device(device).type == "meta":
        return model
    model.to_empty(device=device)
    initialise_weights(model, spec, seed)
    return model
