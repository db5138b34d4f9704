"""Specs are values: checked, compared, written and read; the branch is its equation."""

import pytest
import torch

import weft
from weft import recipe
from weft import spec as S
from weft.nn.block import BranchLayer

NORM = S.LayerNorm()
LOOK = S.Attention(heads=2, pattern=S.CausalAttention())


def gpt(**changes: object) -> S.Spec:
    block = S.Block(
        attention=S.pre_norm(NORM, LOOK), feedforward=S.pre_norm(NORM, S.MLP(hidden=16))
    )
    return S.Spec(
        **{
            "width": 8,
            "source": S.Tokens(vocab_size=11),
            "decoder": S.Stack(blocks=(block,) * 2),
            "head": S.LMHead(),
        }
        | changes
    )


@pytest.mark.parametrize(
    ("path", "new", "words"),
    [
        (
            "decoder.blocks.1.attention.inner.heads",
            3,
            r"decoder\.blocks\.1\.attention\.inner\.heads: 3 does not divide the width 8; choose",
        ),
        (
            "decoder.blocks.0.attention.inner.pattern",
            S.FullAttention(),
            r"pattern: a decoder of tokens must not attend to later tokens; use CausalAttention",
        ),
        (
            "decoder.blocks.0.attention.inner.pattern",
            S.SlidingWindow(before=2, after=1),
            "must not attend to later tokens",
        ),
        ("decoder.blocks.0.attention.inner.kv_heads", 4, "kv_heads: 4 does not divide the 2 heads"),
        (
            "decoder.blocks.0.attention.inner.rope",
            S.RoPE(fraction=0.25),
            "rope.fraction: rotates 1 dimensions",
        ),
        (
            "decoder.blocks.0.feedforward.inner",
            S.MixtureOfExperts(experts=2, top_k=3, expert=S.MLP(hidden=8)),
            "top_k: 3 exceeds experts = 2",
        ),
        ("decoder.blocks.0.feedforward.inner", LOOK, "must be MLP, GatedMLP or MixtureOfExperts"),
        (
            "decoder.blocks.0.cross_attention",
            S.pre_norm(NORM, S.Attention(heads=2)),
            "cross_attention: needs an encoder",
        ),
        (
            "decoder.position_bias",
            S.RelativeBias(buckets=7),
            "7 buckets to distance 128: give an even count",
        ),
        ("source.positions", S.SinusoidalPositions(), None),
        ("head", S.DetectionHead(num_labels=3), "DetectionHead needs object queries"),
        (
            "head",
            S.ClassifierHead(num_labels=2, labels=("a",), pooling="last"),
            "head.labels: has 1 names for 2 classes",
        ),
        (
            "head",
            S.ClassifierHead(num_labels=2, pooling="tokens"),
            "the model has no extra tokens",
        ),
        (
            "head",
            S.ClassifierHead(num_labels=2),
            "use 'last' or 'mean', not 'cls'",
        ),
        ("decoder.blocks", (), "decoder.blocks: is empty"),
        ("decoder.blocks.0.attention.inner.rope", S.RoPE(theta=5.0), None),
        ("target", S.SharedTokens(), "target: only encoder-decoder models"),
    ],
)
def test_incompatible_fields_raise_an_error_with_path_and_fix(
    path: str, new: object, words: str | None
) -> None:
    if words is None:
        assert S.get_path(S.replace_path(gpt(), path, new), path) == new
    else:
        with pytest.raises(ValueError, match=words) as error:
            S.replace_path(gpt(), path, new)
        assert "\n" not in str(error.value)


def test_experts_of_one_model_have_the_same_weights_of_their_losses() -> None:
    first, *_ = gpt().decoder.blocks

    def mixed(z: float) -> S.Block:
        return S.replace(
            first,
            feedforward=S.pre_norm(
                NORM,
                S.MixtureOfExperts(experts=2, top_k=1, expert=S.MLP(hidden=8), router_z_weight=z),
            ),
        )

    assert gpt(decoder=S.Stack(blocks=(mixed(0.5), first, mixed(0.5))))
    with pytest.raises(
        ValueError,
        match=r"blocks\.2\.feedforward\.inner\.router_z_weight: differs from 0\.5 in "
        r"decoder\.blocks\.0; "
        r"give all",
    ):
        gpt(decoder=S.Stack(blocks=(mixed(0.5), first, mixed(0.1))))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: S.Attention(haeds=2), "Attention has no field 'haeds'; did you mean 'heads'"),
        (
            lambda: S.Attention(heads=2, pattern="causal"),
            r"pattern = 'causal': give one of FullAttention, CausalAttention, SlidingWindow, "
            r"ShiftedWindows, Linformer$",
        ),
        (lambda: S.Stack(blocks=[1, 2]), r"Stack.blocks = 1: give one of Block, ParallelBlock"),
        (lambda: S.LayerNorm(eps=float("nan")), "LayerNorm.eps = nan"),
        (lambda: weft.bert("tiny", hed=1), "bert has no 'hed'; did you mean 'head'"),
        (
            lambda: S.MLP(hidden=8, activation="gleu"),
            "MLP.activation = 'gleu': input should be 'relu'",
        ),
        (
            lambda: recipe.BPE(vocab_size=9, lowercase="marks"),
            "BPE.lowercase = 'marks': input should be a valid boolean or be 'marked'$",
        ),
        (
            lambda: S.from_json('{"kind": "LayerNrom"}'),
            "unknown choice 'LayerNrom'; did you mean 'LayerNorm'",
        ),
        (
            lambda: S.from_json(gpt().to_json().replace('"heads": 2', '"heads": "2"', 1)),
            r"^decoder\.blocks\.0\.attention\.inner: Attention\.heads = '2'",
        ),
        (
            lambda: S.replace_path(gpt(), "decoder.blocks.0.atention", 1),
            "has no field 'atention'; did you mean 'decoder.blocks.0.attention'",
        ),
    ],
)
def test_a_slip_of_the_pen_gets_one_line_and_the_nearest_right_name(
    make: object, words: str
) -> None:
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_spec_is_a_value() -> None:
    assert gpt() == gpt()
    assert hash(gpt()) == hash(gpt())
    assert gpt() != gpt(width=16)
    with pytest.raises(AttributeError):
        gpt().width = 9  # type: ignore[misc]


def test_deepnorm_scales_are_those_of_its_table() -> None:
    """arXiv:2203.00555, table 1, at the depths of its translation models."""
    assert S.deepnorm_scales("decoder", decoder=24) == pytest.approx((48**0.25, 192**-0.25))
    assert S.deepnorm_scales("encoder", encoder=12) == pytest.approx((24**0.25, 96**-0.25))
    assert S.deepnorm_scales("encoder", encoder=18, decoder=6) == pytest.approx(
        (0.81 * (18**4 * 6) ** 0.0625, 0.87 * (18**4 * 6) ** -0.0625)
    )
    assert S.deepnorm_scales("decoder", encoder=18, decoder=6) == pytest.approx(
        (18**0.25, 72**-0.25)
    )


@pytest.mark.parametrize("placed", ["pre", "post", "sandwich", "deep"])
def test_a_branch_is_its_equation(placed: str) -> None:
    inner = S.MLP(hidden=16)
    s = (
        S.deepnorm_branch(NORM, inner, S.deepnorm_scales("decoder", decoder=12))
        if placed == "deep"
        else getattr(S, f"{placed}_norm")(NORM, inner)
    )
    m = BranchLayer(s, 8).double()
    with torch.no_grad():
        for p in m.parameters():
            p.normal_()
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    truth = {
        "pre": lambda: x + m.inner(m.before(x)),
        "post": lambda: m.after(x + m.inner(x)),
        "sandwich": lambda: x + m.out(m.inner(m.before(x))),
        "deep": lambda: m.after(24**0.25 * x + m.inner(x)),
    }[placed]()
    assert torch.equal(m(x), truth)


def test_skipped_branches_keep_the_mean_and_are_whole() -> None:
    m = BranchLayer(S.Branch(inner=S.MLP(hidden=16), drop_path=0.5), 8).train()
    x = torch.randn(1, 3, 8).expand(2000, 3, 8)
    update = m(x) - x
    whole = m.inner(x[:1])
    kept = update.abs().sum((1, 2)) > 0
    assert torch.allclose(update[kept][0], 2 * whole[0], atol=1e-6)
    assert 0.45 < float(kept.float().mean()) < 0.55


IMAGE = S.Patches(image_size=8, patch_size=2, extra_tokens=())


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (
            S.Attention(heads=2, pattern=S.CausalAttention()),
            "must be ShiftedWindows or FullAttention in a Pyramid",
        ),
        (
            S.Attention(heads=2, rope=S.RoPE()),
            "must be ShiftedWindows or FullAttention in a Pyramid",
        ),
    ],
)
def test_a_pyramid_refuses_what_it_would_not_read(inner: S.Attention, words: str) -> None:
    block = S.Block(
        attention=S.pre_norm(NORM, inner), feedforward=S.pre_norm(NORM, S.MLP(hidden=8))
    )
    with pytest.raises(ValueError, match=words):
        S.Spec(
            width=8,
            source=IMAGE,
            encoder=S.Pyramid(stages=((block,),)),
            head=S.ClassifierHead(num_labels=2, pooling="mean"),
        )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"targets": torch.zeros(1, 3, dtype=torch.long)}, "this model reads no targets"),
        ({"token_type_ids": torch.zeros(1, 3, dtype=torch.long)}, "this model has no token types"),
    ],
)
def test_an_argument_that_would_be_ignored_is_refused(
    given: dict[str, torch.Tensor], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        weft.build(gpt())(torch.zeros(1, 3, dtype=torch.long), **given)


@pytest.mark.parametrize("name", ["attention_mask", "document_ids"])
def test_an_image_of_patches_has_neither_padding_nor_documents(name: str) -> None:
    s = weft.vit(depth=1, width=8, heads=2, hidden=8, image_size=8, patch_size=4)
    with pytest.raises(ValueError, match=f"set {name} to None"):
        weft.build(s)(torch.zeros(1, 3, 8, 8), **{name: torch.ones(1, 5, dtype=torch.long)})


def test_more_tokens_than_learned_positions_say_so_also_under_padding() -> None:
    model = weft.build(gpt(source=S.Tokens(vocab_size=11, positions=S.LearnedPositions(count=4))))
    for mask in (None, torch.ones(1, 5, dtype=torch.bool)):
        with pytest.raises(ValueError, match="5 tokens exceed the 4 learned positions"):
            model(torch.zeros(1, 5, dtype=torch.long), attention_mask=mask)
    with pytest.raises(
        ValueError, match="a cache of 5 tokens exceeds the model's longest row of 4"
    ):
        model.new_cache(1, 5)


def test_the_last_token_of_a_long_row_is_found_in_bf16() -> None:
    model = weft.build(
        gpt(head=S.ClassifierHead(num_labels=2, pooling="last")), dtype=torch.bfloat16
    ).eval()
    ids = torch.arange(600)[None] % 11
    assert torch.equal(model(ids, attention_mask=torch.ones(1, 600, dtype=torch.bool)), model(ids))


def test_flops_of_an_image_that_patches_do_not_divide_are_those_of_the_padded_one() -> None:
    spec = weft.vit("base", image_size=224)
    assert spec.flops(length=225) == spec.flops(length=240)


def test_a_spec_prints_as_an_indented_tree_and_its_repr_can_be_evaluated() -> None:
    model = weft.bert("base")
    text = str(model).splitlines()
    assert text[:3] == ["Spec", "  width: 768", "  source: Tokens"]
    assert "      12 × Block" in text
    assert "          inner: Attention(heads=12, dropout=0.1)" in text
    assert len(text) < 30
    assert eval(repr(model), vars(S)) == model  # noqa: S307
    assert "\n" not in repr(model)
    assert str(S.LayerNorm(eps=1e-12)) == "LayerNorm(eps=1e-12)"
    assert "      7 × 3 in this order" in str(weft.modernbert("base")).splitlines()


def test_a_list_is_accepted_where_a_tuple_is_stored() -> None:
    block = S.Block(
        attention=S.Branch(inner=S.Attention(heads=2)), feedforward=S.Branch(inner=S.MLP(hidden=8))
    )
    assert S.Stack(blocks=[block, block]) == S.Stack(blocks=(block, block))  # type: ignore[arg-type]
    assert S.Pyramid(stages=[[block], [block]]).stages == ((block,), (block,))  # type: ignore[arg-type]


def test_images_of_another_size_have_as_many_positions() -> None:
    model = S.with_image_size(weft.vit("base"), 384)
    assert model == weft.vit("base", image_size=384)
    swin = S.with_image_size(weft.swin("tiny"), 256)
    assert swin == weft.swin("tiny", image_size=256)
    with pytest.raises(ValueError, match="has no patches"):
        S.with_image_size(gpt(), 384)
    with pytest.raises(ValueError, match="16 does not divide image_size 100"):
        S.with_image_size(weft.vit("base"), 100)


def test_a_grid_fits_its_learned_rows_and_columns() -> None:
    grid = S.Patches(image_size=64, patch_size=8, positions=S.LearnedPositions2D(count=7))
    with pytest.raises(ValueError, match="7 is less than the 8 rows and columns"):
        S.replace(weft.vit("base"), source=grid)
