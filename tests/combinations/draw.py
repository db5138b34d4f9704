"""Draw random specs over all axes of the design space."""

from hypothesis import strategies as st

from weft import spec as S

norms = st.one_of(
    st.builds(S.LayerNorm, eps=st.sampled_from((1e-5, 1e-6)), bias=st.booleans()),
    st.builds(S.RMSNorm),
)
activations = st.sampled_from(("relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"))
rates = st.sampled_from((0.0, 0.5))
WIDTHS = (8, 16, 24)
VOCABULARY = 19
LENGTH = 7


def denses(kind: type) -> st.SearchStrategy[object]:
    return st.builds(
        kind,
        hidden=st.sampled_from((8, 12)),
        activation=activations,
        bias=st.booleans(),
        dropout=rates,
    )


dense = st.one_of(denses(S.MLP), denses(S.GatedMLP))
experts = st.builds(
    lambda count, chosen, expert, gates: S.MixtureOfExperts(
        experts=count, top_k=min(count, chosen), expert=expert, softmax_over=gates
    ),
    st.integers(2, 4),
    st.integers(1, 3),
    dense,
    st.sampled_from(("top_k", "all")),
)
feedforwards = st.one_of(dense, dense, experts)


@st.composite
def attentions(draw: st.DrawFn, width: int, pattern: object, plain: bool = False) -> S.Attention:
    """`plain`: without positions of its own, as cross-attention and windows ask."""
    heads = draw(st.sampled_from([h for h in (1, 2, 4) if width % h == 0]))
    key = draw(st.sampled_from((None, 4, 6)))
    rotary = score = None
    if not plain:
        turned = key or width // heads
        fractions = [
            f
            for f in (1.0, 0.5)
            if int(turned * f) >= 2 and int(turned * f) % 2 == 0 and turned * f == int(turned * f)
        ]
        scaling = st.one_of(
            st.none(), st.just(S.RoPEScaling(factor=8.0, original_context_length=16))
        )
        if fractions:
            rotary = draw(
                st.one_of(
                    st.none(),
                    st.builds(
                        S.RoPE,
                        theta=st.sampled_from((100.0, 10_000.0)),
                        fraction=st.sampled_from(fractions),
                        scaling=scaling,
                    ),
                )
            )
        score = draw(scores)
    return S.Attention(
        heads=heads,
        kv_heads=draw(st.sampled_from([None, *(g for g in (1, 2) if heads % g == 0)])),
        head_dim=key,
        value_dim=draw(st.sampled_from((None, 3, 8))),
        pattern=pattern,
        rope=rotary,
        position_bias=score,
        scale=draw(st.sampled_from((None, 1.0, 0.3))),
        softcap=draw(st.sampled_from((None, None, 0.5))),
        qk_norm=draw(
            st.one_of(
                st.none(),
                st.builds(S.QKNorm, norm=norms, per=st.sampled_from(("head", "projection"))),
            )
        ),
        bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        dropout=draw(rates),
    )


scores = st.one_of(
    st.none(),
    st.none(),
    st.builds(S.ALiBi),
    st.builds(
        S.RelativeBias,
        buckets=st.sampled_from((4, 8, 32)),
        max_distance=st.sampled_from((20, 128)),
        bidirectional=st.booleans(),
    ),
)


@st.composite
def branches(draw: st.DrawFn, inner: object, parallel: bool = False) -> S.Branch:
    maybe = st.one_of(st.none(), norms)
    scale = draw(st.one_of(st.none(), st.builds(S.LayerScale, initial=st.sampled_from((0.1, 1.0)))))
    return S.Branch(
        inner=inner,
        before=draw(maybe),
        out=draw(maybe),
        layer_scale=scale,
        after=None if parallel else draw(maybe),
        residual_scale=1.0 if parallel else draw(st.sampled_from((1.0, 1.7))),
        init_gain=draw(st.sampled_from((1.0, 0.5))),
        dropout=draw(rates),
        drop_path=draw(st.sampled_from((0.0, 0.3))),
    )


@st.composite
def blocks(
    draw: st.DrawFn,
    width: int,
    pattern: object,
    cross: bool = False,
    plain: bool = False,
    heads: int | None = None,
) -> object:
    look = draw(attentions(width, pattern, plain))
    if heads is not None:
        look = S.replace(look, heads=heads, kv_heads=None, head_dim=look.head_dim or 4)
    feed = draw(feedforwards)
    if not cross and draw(st.integers(0, 3)) == 0:
        return S.ParallelBlock(
            attention=draw(branches(look, True)), feedforward=draw(branches(feed, True))
        )
    return S.Block(
        attention=draw(branches(look)),
        feedforward=draw(branches(feed)),
        cross_attention=draw(branches(draw(attentions(width, S.FullAttention(), True))))
        if cross
        else None,
    )


looking_back = st.one_of(
    st.just(S.CausalAttention()),
    st.just(S.CausalAttention()),
    st.builds(S.SlidingWindow, before=st.integers(0, 4), after=st.just(0)),
)
looking_around = st.one_of(
    st.just(S.FullAttention()),
    st.just(S.FullAttention()),
    st.just(S.CausalAttention()),
    st.builds(S.SlidingWindow, before=st.integers(0, 3), after=st.integers(0, 3)),
)


@st.composite
def stacks(
    draw: st.DrawFn,
    width: int,
    patterns: st.SearchStrategy[object],
    cross: bool = False,
    linformer: int = 0,
) -> S.Stack:
    shared = draw(scores) if not linformer else None
    heads = draw(st.sampled_from((1, 2))) if shared is not None else None
    made = []
    for _ in range(draw(st.integers(1, 2))):
        pattern = draw(patterns)
        plain = False
        if linformer and draw(st.booleans()):
            pattern = S.Linformer(length=linformer, rank=draw(st.integers(1, 4)))
            plain = True
        made.append(draw(blocks(width, pattern, cross, plain, heads)))
    return S.Stack(blocks=tuple(made), norm=draw(st.one_of(st.none(), norms)), position_bias=shared)


transforms = st.one_of(
    st.none(),
    st.builds(
        S.HeadTransform,
        activation=activations,
        norm=st.one_of(st.none(), norms),
        bias=st.booleans(),
    ),
)
positions = st.one_of(
    st.none(),
    st.builds(S.SinusoidalPositions, layout=st.sampled_from(("interleaved", "halves"))),
    st.builds(S.LearnedPositions, count=st.just(16), offset=st.integers(0, 2)),
)
starts = st.one_of(
    st.builds(
        S.NormalInit,
        std=st.just(0.2),
        truncate_at=st.sampled_from((None, 2.0)),
        scale_by_depth=st.booleans(),
    ),
    st.builds(S.XavierInit),
    st.builds(S.T5Init),
    st.builds(S.FanInInit),
)


@st.composite
def tokens(draw: st.DrawFn) -> S.Tokens:
    return S.Tokens(
        vocab_size=VOCABULARY,
        embedding_dim=draw(st.sampled_from((None, None, 12))),
        positions=draw(positions),
        token_types=draw(st.sampled_from((None, 2))),
        embedding_scale=draw(st.sampled_from((1.0, 2.0))),
        norm=draw(st.one_of(st.none(), norms)),
        dropout=draw(rates),
    )


@st.composite
def vocabularies(draw: st.DrawFn, table: S.Tokens, width: int) -> S.LMHead:
    tied = draw(st.booleans())
    transform = draw(transforms)
    if tied and table.embedding_dim not in (None, width) and transform is None:
        transform = S.HeadTransform()
    return S.LMHead(
        tied=tied,
        bias=draw(st.sampled_from(("none", "trained", "buffer"))),
        transform=transform,
        logit_scale=draw(st.sampled_from((1.0, 0.5))),
        softcap=draw(st.sampled_from((None, 2.0))),
    )


@st.composite
def pooled_heads(draw: st.DrawFn, pools: tuple[str, ...] = ("cls", "last", "mean")) -> object:
    return draw(
        st.one_of(
            st.builds(
                S.ClassifierHead,
                num_labels=st.integers(1, 3),
                pooling=st.sampled_from(pools),
                transform=transforms,
                dropout=rates,
                bias=st.booleans(),
            ),
            st.builds(
                S.TokenClassifierHead,
                num_labels=st.integers(1, 3),
                transform=transforms,
                dropout=rates,
            ),
            st.builds(S.SpanHead, transform=transforms),
            st.builds(S.NoHead, transform=transforms),
        )
    )


@st.composite
def text_models(draw: st.DrawFn, kind: str) -> S.Spec:
    width = draw(st.sampled_from(WIDTHS))
    source = draw(tokens())
    target = None
    if kind == "both":
        shared = S.SharedTokens(
            positions=draw(positions),
            embedding_scale=draw(st.sampled_from((1.0, 2.0))),
            norm=draw(st.one_of(st.none(), norms)),
        )
        if source.embedding_dim not in (None, width):
            shared = S.Tokens(vocab_size=VOCABULARY)
        target = draw(
            st.one_of(st.just(shared), tokens().map(lambda t: S.replace(t, token_types=None)))
        )
    table = target if isinstance(target, S.Tokens) else source
    head = draw(
        st.one_of(
            vocabularies(table, width),
            pooled_heads(("cls", "last", "mean") if kind == "encoder" else ("last", "mean")),
        )
    )
    encoder = (
        draw(stacks(width, looking_around, linformer=draw(st.sampled_from((0, 16)))))
        if kind != "decoder"
        else None
    )
    decoder = draw(stacks(width, looking_back, cross=kind == "both")) if kind != "encoder" else None
    return S.Spec(
        width=width,
        source=source,
        target=target,
        encoder=encoder,
        decoder=decoder,
        head=head,
        init=draw(starts),
    )


@st.composite
def patch_models(draw: st.DrawFn) -> S.Spec:
    width = draw(st.sampled_from((8, 16, 24)))
    extra = draw(st.sampled_from(((), ("class",), ("class", "distillation"))))
    cells = 16 + len(extra)
    place = draw(
        st.one_of(
            st.none(),
            st.just(S.LearnedPositions(count=cells)),
            st.just(S.LearnedPositions2D(count=16)),
            st.just(S.SinusoidalPositions2D()),
        )
    )
    source = S.Patches(
        image_size=8,
        patch_size=2,
        channels=draw(st.sampled_from((1, 3))),
        extra_tokens=extra,
        positions=place,
        norm=draw(st.one_of(st.none(), norms)),
        dropout=draw(rates),
    )
    if not extra and draw(st.booleans()):
        encoder: object = draw(pyramids(width))
        head = draw(pooled_heads(("cls", "mean")))
    else:
        patterns = looking_around if extra else st.one_of(looking_around, windows)
        encoder = draw(flat_images(width, patterns))
        head = draw(
            st.one_of(
                pooled_heads((*(("tokens",) if extra else ()), "cls", "mean")),
                *([guesses()] if extra else ()),
            )
        )
    return S.Spec(width=width, source=source, encoder=encoder, head=head, init=draw(starts))


windows = st.builds(
    S.ShiftedWindows, size=st.sampled_from((2, 3, 7)), shift=st.integers(0, 1), bias=st.booleans()
)


@st.composite
def flat_images(draw: st.DrawFn, width: int, patterns: st.SearchStrategy[object]) -> S.Stack:
    made = [
        draw(blocks(width, pattern, plain=isinstance(pattern, S.ShiftedWindows)))
        for pattern in (draw(patterns) for _ in range(draw(st.integers(1, 2))))
    ]
    return S.Stack(blocks=tuple(made), norm=draw(st.one_of(st.none(), norms)))


@st.composite
def pyramids(draw: st.DrawFn, width: int) -> S.Pyramid:
    stages = tuple(
        tuple(
            draw(blocks(width << s, draw(windows), plain=True))
            for _ in range(draw(st.integers(1, 2)))
        )
        for s in range(2)
    )
    return S.Pyramid(stages=stages, norm=draw(st.one_of(st.none(), norms)), merge_norm=draw(norms))


@st.composite
def guesses(draw: st.DrawFn) -> S.PixelDecoder:
    return S.PixelDecoder(width=8, stack=draw(stacks(8, st.just(S.FullAttention()))))


@st.composite
def backbone_models(draw: st.DrawFn) -> S.Spec:
    width = draw(st.sampled_from((8, 16)))
    decodes = draw(st.booleans())
    attentions = ["attention", "encoder-attention"]
    if decodes:
        attentions.append("decoder-attention")
    place = draw(
        st.sampled_from(
            (None, S.SinusoidalPositions2D(scale="unit"), S.LearnedPositions2D(count=16))
        )
    )
    source = S.ResNet(
        depths=(1, 1),
        widths=(8, 16),
        stem_width=4,
        positions=place,
        positions_at=draw(st.sampled_from((*attentions, "input"))),
        stem_type=draw(st.sampled_from(("7x7", "3x3"))),
        block=draw(st.sampled_from(("bottleneck", "basic"))),
        norm=draw(st.sampled_from((S.FrozenBatchNorm(), S.GroupNorm(groups=2)))),
        padding=draw(st.sampled_from(("zeros", "masked"))),
    )
    encoder = draw(stacks(width, looking_around))
    if not decodes:
        return S.Spec(
            width=width,
            source=source,
            encoder=encoder,
            head=draw(pooled_heads(("cls", "mean"))),
            init=draw(starts),
        )
    return S.Spec(
        width=width,
        source=source,
        target=S.ObjectQueries(count=3, at=draw(st.sampled_from(("attention", "input")))),
        encoder=encoder,
        decoder=draw(stacks(width, st.just(S.FullAttention()), cross=True)),
        head=draw(
            st.one_of(
                st.builds(
                    S.DetectionHead,
                    num_labels=st.integers(1, 3),
                    box_layers=st.integers(1, 3),
                    scores=st.sampled_from(("softmax", "sigmoid")),
                ),
                pooled_heads(),
            )
        ),
        init=draw(starts),
    )


models = {
    "encoder": text_models("encoder"),
    "decoder": text_models("decoder"),
    "both": text_models("both"),
    "patches": patch_models(),
    "backbone": backbone_models(),
}
