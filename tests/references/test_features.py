"""Features of several layers (BERT, arXiv:1810.04805, table 7): transformers' hidden_states,
counted, trained with the head.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import weft
from weft import recipe as R
from weft import spec as S
from weft.nn.model import build
from weft.spec import describe
from weft.training.trainable import freeze_untrained

from ..tasks.tuning import TEXT, twins

LAST = (-4, -3, -2, -1)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", {**TEXT, "num_hidden_layers": 5}),
    "gpt2": (
        "GPT2Model",
        {"vocab_size": 60, "n_positions": 64, "n_embd": 16, "n_layer": 5, "n_head": 2},
    ),
}
SMALL: dict[str, Any] = {
    "depth": 5,
    "width": 16,
    "heads": 2,
    "hidden": 32,
    "vocab_size": 60,
    "positions": 64,
}
TAGS = S.TokenClassifierHead(num_labels=3)


def read(
    model: weft.Model, features: S.LayerMix, ids: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """What the head reads of a model with the same weights and these features."""
    made = build(S.replace(model.spec, head=TAGS, layer_mix=features))
    trunk = {
        name: tensor for name, tensor in model.state_dict().items() if not name.startswith("head.")
    }
    made.load_state_dict(made.state_dict() | trunk)
    made.eval()
    sequence = made.embed(ids, attention_mask=mask)
    return (made.encode(sequence) if made.encoder is not None else made.decode(sequence)).x_BLD


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layers", [LAST, (0,), (-2,), (-1,), (5, 0, 1)])
def test_features_are_transformers_hidden_states_by_the_same_numbers(
    name: str, layers: tuple[int, ...], tmp_path: Path
) -> None:
    kind, config = MODELS[name]
    other, model = twins(kind, tmp_path, **config)
    ids = torch.randint(5, 60, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[1, 6:] = False
    with torch.no_grad():
        hidden = other(
            input_ids=ids, attention_mask=mask.long(), output_hidden_states=True
        ).hidden_states
        own = [hidden[i][mask] for i in layers]
        assert_close(
            read(model, S.LayerMix(layers=layers), ids, mask)[mask],
            torch.cat(own, -1),
            rtol=1e-5,
            atol=1e-5,
        )
        assert_close(
            read(model, S.LayerMix(layers=layers, combine="sum"), ids, mask)[mask],
            sum(own),
            rtol=1e-5,
            atol=1e-5,
        )
        weighted = read(model, S.LayerMix(layers=layers, combine="weighted"), ids, mask)[mask]
        # equal weights to begin with
        assert_close(weighted, torch.stack(own).mean(0), rtol=1e-5, atol=1e-5)


def test_trained_weights_are_a_softmax_over_the_layers() -> None:
    model = build(
        S.replace(
            weft.bert(**SMALL, dropout=0.0),
            head=TAGS,
            layer_mix=S.LayerMix(layers=LAST, combine="weighted"),
        )
    ).eval()
    with torch.no_grad():
        model.layer_mix.weight.copy_(torch.tensor([0.0, 1.0, -2.0, 0.5]))
        ids = torch.randint(0, 60, (2, 7))
        layers = model.encoder(model.embed(ids)).layer_outputs
        expected = sum(
            w * x for w, x in zip(model.layer_mix.weight.softmax(0), layers, strict=True)
        )
        assert_close(model.encode(model.embed(ids)).x_BLD, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("combine", ["concat", "sum", "weighted"])
@pytest.mark.parametrize(
    "head",
    [
        TAGS,
        S.ClassifierHead(num_labels=3, transform=S.HeadTransform(activation="tanh")),
        S.SpanHead(),
        S.NoHead(),
    ],
)
def test_the_count_of_parameters_is_that_of_the_built_model(combine: Any, head: Any) -> None:
    spec = S.replace(
        weft.bert(**SMALL), head=head, layer_mix=S.LayerMix(layers=LAST, combine=combine)
    )
    assert spec.parameter_count() == sum(p.numel() for p in build(spec).parameters())
    assert describe.model_tree("", spec).parameters == spec.parameter_count()
    assert S.from_json(spec.to_json()) == spec


def test_a_head_on_frozen_features_trains_itself_and_the_weights_of_the_layers_alone() -> None:
    model = build(
        S.replace(
            weft.bert(**SMALL), head=TAGS, layer_mix=S.LayerMix(layers=LAST, combine="weighted")
        )
    )
    freeze_untrained(model, R.HeadOnly())
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {
        "layer_mix.weight",
        "head.out.weight",
        "head.out.bias",
    }


@pytest.mark.parametrize(
    ("said", "features", "head"),
    [
        (
            "layer 6 does not exist",
            S.LayerMix(layers=(6,)),
            TAGS,
        ),
        ("layer -7 does not exist", S.LayerMix(layers=(-7,)), TAGS),
        ("has duplicates", S.LayerMix(layers=(5, -1)), TAGS),
        (
            "\\(ClassifierHead, TokenClassifierHead, SpanHead or NoHead\\)",
            S.LayerMix(layers=(-1,)),
            S.LMHead(),
        ),
    ],
)
def test_layers_that_are_not_there_and_heads_that_cannot_read_them_are_refused(
    said: str, features: S.LayerMix, head: Any
) -> None:
    with pytest.raises(ValueError, match=said):
        S.replace(weft.bert(**SMALL), head=head, layer_mix=features)
