"""`--set`: every path sets its field, and a wrong path gives a one-line error with a suggestion."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.commands.verbs import parser
from weft.support.registry import CHOICES
from weft.support.synonyms import PLACES, SYNONYMS, closest_name, normalise_name, suggest

DATA = R.Data(
    rows=R.Documents(),
    train=R.Source(paths=("text.txt",)),
    valid=R.Source(paths=("text.txt",)),
    tokenizer=R.ByteBPE(vocab_size=300),
)
GPT = R.Recipe(
    name="small",
    model=weft.gpt2(depth=4, width=16, heads=2, hidden=32, vocab_size=261, positions=16),
    task=R.CausalLM(),
    data=DATA,
    batch=R.FixedBatch(size=4, length=16),
    steps=6,
    optimiser=R.AdamW(lr=1e-3),
)
BERT = replace(
    GPT,
    model=weft.bert(depth=3, width=16, heads=2, hidden=32, vocab_size=261, positions=16),
    task=R.MaskedLM(),
)
T5 = replace(
    GPT,
    model=weft.transformer(depth=2, width=16, heads=2, hidden=32, vocab_size=261),
    task=R.Translation(),
    batch=R.TokenBudget(tokens=64, length=16),
    optimiser=R.Muon(lr=1e-3, other=R.AdamW(lr=1e-3)),
)
RECIPES = (GPT, BERT, T5)


def refused(recipe: R.Recipe, *words: str) -> str:
    with pytest.raises(ValueError) as error:
        R.apply_overrides(recipe, list(words))
    assert "\n" not in str(error.value)
    return str(error.value)


# Paths


def test_one_text_is_enough_where_a_list_of_texts_is_meant() -> None:
    found = R.apply_overrides(GPT, ["data.train.paths=../photos", 'data.valid.paths=["a", "b"]'])
    assert (found.data.train.paths, found.data.valid.paths) == (("../photos",), ("a", "b"))


def test_a_star_reaches_every_block_and_the_whole_is_checked_once() -> None:
    found = R.apply_overrides(
        GPT,
        [
            "model.decoder.blocks.*.attention.dropout=0.25",
            "model.width=24",
            "model.decoder.blocks.*.attention.inner.heads=3",
        ],
    )
    assert [b.attention.dropout for b in found.model.decoder.blocks] == [0.25] * 4
    # 2 heads divide 24 as well, 3 do not divide 16: only the end is checked
    assert found.model.width == 24
    assert found == R.apply_overrides(
        GPT,
        [
            *(f"model.decoder.blocks.{i}.attention.dropout=0.25" for i in range(4)),
            "model.width=24",
            *(f"model.decoder.blocks.{i}.attention.inner.heads=3" for i in range(4)),
        ],
    )


def test_a_value_by_its_name_takes_its_fields_from_the_words_after_it() -> None:
    found = R.apply_overrides(
        GPT,
        [
            "optimiser=Adam",
            "optimiser.lr=2e-3",
            "steps=1e3",
            "average=AverageLast",
            "average.checkpoints=2",
        ],
    )
    assert (found.optimiser, found.steps, found.average) == (
        R.Adam(lr=2e-3),
        1000,
        R.AverageLast(checkpoints=2),
    )


@pytest.mark.parametrize("path", ["model.decoder.depth", "model.decoder.blocks.length"])
def test_another_depth_repeats_the_blocks(path: str) -> None:
    for depth in (1, 3, 7):
        found = R.apply_overrides(GPT, [f"{path}={depth}"])
        assert found.model == weft.gpt2(
            depth=depth, width=16, heads=2, hidden=32, vocab_size=261, positions=16
        )


def test_a_pattern_of_blocks_goes_on_and_what_is_no_pattern_is_refused() -> None:
    near, far = (
        S.Block(
            attention=S.pre_norm(S.RMSNorm(), S.Attention(heads=2, pattern=pattern)),
            feedforward=S.pre_norm(S.RMSNorm(), S.MLP(hidden=32)),
        )
        for pattern in (S.SlidingWindow(before=4, after=0), S.CausalAttention())
    )

    def stacked(*blocks: S.Block) -> R.Recipe:
        return replace(
            GPT, model=replace(GPT.model, decoder=S.Stack(blocks=blocks, norm=S.RMSNorm()))
        )

    for blocks in ((near, near, far) * 2, (near, near, far, near, near, far, near)):
        found = R.apply_overrides(stacked(*blocks), ["model.decoder.depth=11"])
        assert found.model.decoder == S.Stack(blocks=((near, near, far) * 4)[:11], norm=S.RMSNorm())
    assert "model.decoder.blocks: the 2 blocks have no repeating pattern" in refused(
        stacked(near, far), "model.decoder.depth=3"
    )
    assert "model.decoder.blocks: the 3 blocks have no repeating pattern" in refused(
        stacked(near, near, far), "model.decoder.depth=6"
    )
    deep = tuple(
        S.Block(
            attention=S.deepnorm_branch(
                S.LayerNorm(), S.Attention(heads=2, pattern=S.CausalAttention()), (2.0, 0.5)
            ),
            feedforward=S.deepnorm_branch(S.LayerNorm(), S.MLP(hidden=32), (2.0, 0.5)),
        )
        for _ in range(4)
    )
    assert "model.decoder.blocks.0.attention.residual_scale is DeepNorm's for 4 blocks" in refused(
        stacked(*deep), "model.decoder.depth=6"
    )


# Norm placement


@pytest.mark.parametrize("recipe", [GPT, BERT], ids=["from pre", "from post"])
@pytest.mark.parametrize("how", ["pre", "post", "sandwich"])
def test_norms_move_among_their_places_and_the_final_norm_with_them(
    recipe: R.Recipe, how: str
) -> None:
    name = "decoder" if recipe is GPT else "encoder"
    stack = getattr(recipe.model, name)
    norm = stack.blocks[0].attention.before or stack.blocks[0].attention.after
    lines: list[str] = []
    found = getattr(
        R.apply_overrides(recipe, [f"model.{name}.blocks.*.norm={how}"], lines.append).model, name
    )
    make = {"pre": S.pre_norm, "post": S.post_norm, "sandwich": S.sandwich_norm}[how]
    for old, new in zip(stack.blocks, found.blocks, strict=True):
        assert new.attention == make(norm, old.attention.inner, dropout=old.attention.dropout)
        assert new.feedforward == make(norm, old.feedforward.inner, dropout=old.feedforward.dropout)
    assert found.norm == (None if how == "post" else norm)
    back = R.apply_overrides(
        R.apply_overrides(recipe, [f"model.{name}.blocks.*.norm={how}"]),
        [f"model.{name}.blocks.*.norm={'pre' if recipe is GPT else 'post'}"],
    )
    assert back == recipe
    if (how == "post") != (recipe is BERT):
        assert ("is removed" if how == "post" else "is added") in lines[0]


def test_one_branch_moves_alone_and_deepnorm_is_undone() -> None:
    found = R.apply_overrides(BERT, ["model.encoder.blocks.1.attention.norm=pre"]).model
    assert found.encoder.norm is None  # the last sum still has its norm after it
    assert [b.attention.before is None for b in found.encoder.blocks] == [True, False, True]
    scales = {"residual_scale": 2.0, "init_gain": 0.5}
    deep = R.apply_overrides(
        BERT,
        [
            f"model.encoder.blocks.*.{b}.{f}={x}"
            for b in ("attention", "feedforward")
            for f, x in scales.items()
        ],
    )
    assert R.apply_overrides(deep, ["model.encoder.blocks.*.norm=post"]) == BERT


def test_cross_branches_move_too() -> None:
    found = R.apply_overrides(
        T5, ["model.decoder.blocks.*.norm=pre", "model.encoder.blocks.*.norm=pre"]
    ).model
    assert all(
        b.cross_attention and b.cross_attention.before and not b.cross_attention.after
        for b in found.decoder.blocks
        if isinstance(b, S.Block)
    )
    assert weft.build(found)


def test_norms_that_cannot_be_placed_are_refused_with_the_path() -> None:
    assert "model.encoder.blocks.0.norm = 'both' must be one of pre, post, sandwich" in refused(
        BERT, "model.encoder.blocks.*.norm=both"
    )
    assert "set the position of the blocks' norms with model.encoder.blocks.*.norm=pre" in refused(
        BERT, "model.encoder.norm=pre"
    )
    neox = replace(GPT, model=weft.gpt_neox(depth=2, width=16, heads=2, hidden=32, vocab_size=261))
    assert "decoder.blocks.0.attention: parallel branches share one residual sum" in refused(
        neox, "model.decoder.blocks.*.norm=post"
    )
    bare = R.apply_overrides(GPT, ["model.decoder.blocks.*.attention.before=null"])
    assert "model.decoder.blocks.0.attention has no norm to move" in refused(
        bare, "model.decoder.blocks.*.norm=post"
    )


# Mistakes


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("=3", "--set =3 is not a path and a value"),
        ("model..width=3", "give path=value"),
        ("name.x=3", 'name is "small", which has no fields'),
        ("length_schedule.0=1", "length_schedule.0 does not exist"),
        ("model.decoder.blocks.9.attention.dropout=0.5", "model.decoder.blocks has 4 items"),
        (
            "model.decoder.blocks.*.attention.dropout=2",
            "model.decoder.blocks.0.attention: Branch.dropout = 2.0",
        ),
        (
            "model.decoder.blocks.*.attention.droput=0",
            "model.decoder.blocks.0.attention (Branch) has no field 'droput'; did you mean "
            "'dropout'?",
        ),
        ("model.decoder.depth=0", "must be a whole number from 1 to 10,000"),
        ("guard.spike_deviations.x=64", "guard.spike_deviations is null"),
        ("steps=1.5", "valid integer"),
        ("optimiser=Adam", "Adam needs 'lr'"),
        ("optimiser.learning_rate=3", "optimiser.lr=3e-4"),
        ("lr=3", "optimiser.lr=3e-4"),
        ("batch_size=3", "batch.size=32"),
        ("max_grad_norm=1", "grad_clip=1.0"),
        ("weight_decay=1", "optimiser.weight_decay=0.01"),
        ("model.n_layer=1", "model.decoder.depth=6"),
        ("model.d_model=1", "model.width=256"),
        ("optimizer.rate=1", "did you mean 'optimiser'?"),
        (
            "model.decoder.blocks.*.attention.rope=RoPE",
            "did you mean 'model.decoder.blocks.*.attention.inner.rope'?",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_path_and_the_right_word(word: str, line: str) -> None:
    assert line in refused(GPT, word)


PARTS = st.sampled_from(
    [
        "model",
        "decoder",
        "encoder",
        "blocks",
        "*",
        "0",
        "-1",
        "norm",
        "length",
        "depth",
        "attention",
        "inner",
        "optimiser",
        "lr",
        "name",
        "kind",
        "batch",
        "length_schedule",
        "data",
        "train",
        "paths",
        "",
        "__class__",
        "schedule",
        "checkpoints",
        "pre",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "3",
            "-1",
            "1e999",
            "NaN",
            "-Infinity",
            "null",
            "true",
            "[]",
            "{}",
            "[[1]]",
            '{"kind": 3}',
            '{"kind": "AdamW"}',
            '{"a": 1}',
            "[" * 9999,
            "pre",
            "9" * 5000,
            '"x',
            "\ud800",
            "\0",
            *CHOICES,
        ]
    ),
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(RECIPES),
    st.lists(
        st.one_of(
            st.text(max_size=12),
            st.tuples(st.lists(PARTS, max_size=6).map(".".join), TEXTS).map("=".join),
        ),
        max_size=3,
    ),
)
def test_no_string_is_a_traceback(recipe: R.Recipe, words: list[str]) -> None:
    try:
        found = R.apply_overrides(recipe, words)
    except ValueError:
        return
    assert isinstance(found, R.Recipe)
    assert R.apply_overrides(found, []) == found


# Words that other tools use


def test_every_place_in_the_table_exists_so_that_no_answer_is_out_of_date() -> None:
    verbs = next(a.choices for a in parser()._actions if a.dest == "verb")
    assert verbs
    options = {option for verb in verbs.values() for option in verb._option_string_actions}
    assert not any(reaches(recipe, "optimiser.speed=1") for recipe in RECIPES)
    for places in SYNONYMS.values():
        for place in places:
            if place.startswith("--"):
                assert place in options, place
            elif "=" in place and not place.startswith(("tokenizer.", "optimiser.layer_decay")):
                assert any(reaches(recipe, place) for recipe in RECIPES), place
    assert len(PLACES) == sum(len(names.split()) for names in SYNONYMS), "a name is in two rows"


def reaches(recipe: R.Recipe, place: str) -> bool:
    try:
        R.apply_overrides(
            recipe, [place.replace("hidden=1024", "hidden=32").replace("FOLDER", "x")]
        )
    except ValueError as error:
        return (
            "has no field" not in str(error)
            and "no fields" not in str(error)
            and "does not exist" not in str(error)
        )
    return True


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("train x.py --lr 3", "did you mean --set optimiser.lr=3e-4?"),
        ("train x.py --epochs 3", "--set steps=1000"),
        ("train x.py --batch-size 3", "--set batch.size=32"),
        ("train x.py --seed 3", "--set seed=1"),
        ("train x.py --bf16", "--precision"),
        ("train x.py --resume", "weft resume RUN"),
        ("train x.py --output-dir x", "--output"),
        ("train x.py --max-steps 3", "--set steps=1000"),
        ("tune x --data y --lr 3", "--learning-rates"),
        ("generate x --max-tokens 3", "--max-new-tokens"),
        ("generate x --out y", "--output"),
        ("classify x --bf16", "--precision"),
        ("train x.py --xyz", "available: --help, --set"),
        ("train x.py y.py", "train does not take 'y.py'"),
    ],
)
def test_an_option_of_another_tool_is_answered_with_ours(
    words: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("lr", ["layers", "eps"], None),
        ("--lr", ["--help", "--json"], None),
        ("learning_rate", ["lr", "layers"], "lr"),
        ("batchSize", ["size", "length"], "size"),
        ("BERT", ["bert", "bart"], "bert"),
        ("", ["a"], None),
    ],
)
def test_what_is_not_alike_is_not_proposed(name: str, known: list[str], near: str | None) -> None:
    assert closest_name(name, known) == near
    assert suggest(name, known) == (
        f"did you mean {near!r}?" if near else f"available: {', '.join(known)}"
    )


def test_the_package_knows_its_recipes_and_names_where_a_value_lives() -> None:
    assert weft.recipe is R
    for name, line in (
        ("AdamW", "use weft.recipe.AdamW"),
        ("Muon", "use weft.recipe.Muon"),
        ("from_pretrained", "did you mean 'load'?"),
        ("Bert", "did you mean 'bert'?"),
        ("zebra", "see dir(weft)"),
    ):
        with pytest.raises(
            AttributeError, match=line.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")
        ):
            getattr(weft, name)


def test_json_of_a_value_is_understood() -> None:
    found = R.apply_overrides(GPT, [f"optimiser={json.dumps({'kind': 'SGD', 'lr': 0.1})}"])
    assert found.optimiser == R.SGD(lr=0.1)
    assert normalise_name("--batch-size") == normalise_name("batchSize") == "batchsize"
