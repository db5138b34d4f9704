"""Messages of the Python API: keywords, paths, help() and errors."""

import inspect
import pydoc
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import weft
from tests.inference.small import ready
from weft.cli import main
from weft.families.describe import ARGUMENTS, COUNTS, argument_defaults, call_parameters
from weft.support.python_messages import in_python, python_errors, python_reports
from weft.support.registry import CHOICES


@pytest.fixture(scope="module")
def decoder() -> weft.OpenModel:
    return ready(None, "gpt2")


def line_of(call: object) -> str:
    """The one line of the ValueError that a call raises."""
    with pytest.raises(ValueError, match=r"\w") as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# Generation


def test_sampling_options_are_keywords(decoder: weft.OpenModel) -> None:
    sampling = weft.Sampling(temperature=0.8, top_p=0.9, seed=3)
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 3}
    for prompts in ("the man", ["the man", "a dog"]):
        told = decoder.generate(prompts, max_new_tokens=9, **options)
        assert told == decoder.generate(prompts, max_new_tokens=9, sampling=sampling)
    assert "".join(decoder.stream("the man", max_new_tokens=9, **options)) == decoder.generate(
        "the man", max_new_tokens=9, **options
    )
    ids = [decoder.require_tokenizer.encode("the man").tolist()]
    assert decoder.model.generate(ids, max_new_tokens=9, **options) == decoder.model.generate(
        ids, max_new_tokens=9, sampling=sampling
    )


def test_an_option_that_needs_sampling_turns_it_on(decoder: weft.OpenModel) -> None:
    def told(**options: object) -> str:
        return decoder.generate("the man", max_new_tokens=12, **options)

    assert told(seed=1) == told(temperature=1.0, seed=1)
    assert told(seed=1) != told(seed=2)
    assert told(repetition_penalty=1.3) == told(repetition_penalty=1.3, temperature=0.0)


def test_generation_uses_the_positions_that_are_left(decoder: weft.OpenModel) -> None:
    limit = decoder.model.spec.source.positions.max_length
    text = "the man " * 20
    length = len(decoder.require_tokenizer.encode(text))
    assert limit - 128 < length < limit
    assert decoder.generate(text) == "".join(decoder.stream(text))


def test_one_stop_text_is_one_text(decoder: weft.OpenModel) -> None:
    whole = decoder.generate("the man", max_new_tokens=9)
    stop = whole[2:5]
    assert decoder.generate("the man", max_new_tokens=9, stop=stop) == whole.partition(stop)[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 0.8}, "'temperature'"),
        ({"do_sample": True}, "'temperature'"),
        ({"temperature": -1.0}, "temperature = -1.0"),
        ({"top_p": 1.5}, "top_p = 1.5"),
        ({"temperature": 0.5, "sampling": weft.Sampling()}, "sampling="),
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
        ({"max_new_tokens": "5"}, "max_new_tokens = '5'"),
        ({"num_beams": 0}, "num_beams = 0"),
        ({"num_beams": 2, "temperature": 0.5}, "num_beams=2"),
        ({"num_beams": 2, "stop": "a"}, "num_beams=2"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"stop": ["a", ""]}, "stop"),
    ],
)
def test_a_wrong_generation_option_is_one_line(
    decoder: weft.OpenModel, options: dict[str, object], words: str
) -> None:
    assert words in line_of(lambda: decoder.generate("the man", **options))
    if not options.keys() & {"num_beams", "batch_size"}:
        # at the call, before the first piece is asked for
        assert words in line_of(lambda: decoder.stream("the man", **options))


def test_help_lists_the_sampling_options() -> None:
    for method in (weft.OpenModel.generate, weft.OpenModel.stream):
        shown = inspect.signature(method).parameters
        assert set(inspect.signature(weft.Sampling).parameters) <= set(shown)
        assert "options" not in shown


# Paths


def test_a_star_replaces_every_item() -> None:
    spec = weft.bert("tiny")
    changed = weft.replace_path(spec, "encoder.blocks.*.attention.inner.heads", 4)
    assert [block.attention.inner.heads for block in changed.encoder.blocks] == [4, 4]
    assert weft.replace_path(changed, "encoder.blocks.*.attention.inner.heads", 2) == spec


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("attention.rope", "'encoder.blocks.*.attention.inner.rope'"),
        ("encoder.blocks.1.attention.rope", "'encoder.blocks.1.attention.inner.rope'"),
        ("encoder.blocks.*.attention.num_heads", "'encoder.blocks.*.attention.inner.heads'"),
        ("hidden_size", "'width'"),
        ("encoder.blocks.7.attention", "2"),
        ("encoder.blocks.last.attention", "*"),
        ("width.x", "128"),
        ("decoder.blocks", "None"),
    ],
)
def test_an_unknown_path_is_answered_with_the_right_one(path: str, words: str) -> None:
    spec = weft.bert("tiny")
    for call in (lambda: weft.replace_path(spec, path, None), lambda: weft.get_path(spec, path)):
        assert words in line_of(call)


# help()


def test_help_of_a_family_shows_its_sizes_and_arguments() -> None:
    for family in weft.families.families():
        shown = pydoc.render_doc(family, renderer=pydoc.plaintext)
        words = shown.split()
        for size, row in family.sizes.items():
            assert size in words
            assert {*row} <= {*words}
        for name, parameter in call_parameters(family).items():
            texts = {ARGUMENTS[name], COUNTS.get(name, ARGUMENTS[name])}
            assert any(f"    {name}: {text} (" in shown for text in texts)
            assert name in inspect.signature(family).parameters
            assert parameter.annotation
    assert "class Family" in pydoc.render_doc(weft.Family, renderer=pydoc.plaintext)


def test_the_defaults_in_help_are_those_of_the_call() -> None:
    for family in weft.families.families():
        spec = family()
        for name, default in argument_defaults(family).items():
            assert family(**{name: default}) == spec, f"{family.name}({name}={default!r})"


def test_help_of_a_value_shows_types_in_words() -> None:
    signature = inspect.signature(weft.Attention)
    assert str(signature.parameters["kv_heads"]) == "kv_heads: int | None = None"
    assert str(signature.parameters["dropout"]) == "dropout: float = 0.0"
    for value in CHOICES.values():
        for parameter in inspect.signature(value).parameters.values():
            for word in ("Annotated", "FieldInfo", "typing.", "<"):
                assert word not in str(parameter.annotation), f"{value.__name__}: {parameter}"
    for name in signature.parameters:
        assert f"    {name}: " in inspect.getdoc(weft.Attention)


# Values of the wrong kind


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: weft.bert(128), "128"),
        (lambda: weft.bert("tiny", depth="deep"), "depth = 'deep'"),
        (lambda: weft.swin("tiny", heads=3), "heads = 3"),
    ],
)
def test_a_wrong_argument_of_a_family_is_one_line(call: object, words: str) -> None:
    assert words in line_of(call)


def ids(rows: int, columns: int, fill: int = 1) -> torch.Tensor:
    return torch.full((rows, columns), fill)


TEXT = weft.bert("tiny", depth=1, vocab_size=50)
PAIRS = weft.t5("small", depth=1, vocab_size=50)
IMAGES = weft.vit("base", depth=1, width=8, heads=2, hidden=8, image_size=32)


@pytest.mark.parametrize(
    ("spec", "inputs", "words"),
    [
        (TEXT, [ids(1, 3, 50)], "contain 50; give ids from 0 to 49"),
        (TEXT, [ids(1, 3, -1)], "inputs contain -1;"),
        (TEXT, [torch.tensor([1, 2])], "(1, tokens)"),
        (TEXT, [torch.rand(1, 3)], "torch.float32"),
        (TEXT, [ids(1, 3).to(torch.uint8)], "torch.uint8"),
        (TEXT, [[[1, 2]]], "list"),
        (TEXT, ["a text"], "str"),
        (TEXT, [ids(1, 3), {"attention_mask": ids(1, 2)}], "attention_mask has the shape (1, 2)"),
        (TEXT, [ids(1, 3), {"attention_mask": [[1, 1]]}], "attention_mask has the type list"),
        (TEXT, [ids(2, 3), {"document_ids": ids(1, 3)}], "document_ids has the shape (1, 3)"),
        (TEXT, [ids(1, 3), {"token_type_ids": ids(1, 4)}], "token_type_ids has the shape (1, 4)"),
        (TEXT, [ids(1, 3), {"token_type_ids": ids(1, 3, 7)}], "token_type_ids contain 7"),
        (TEXT, [ids(1, 3), ids(1, 3)], "no targets"),
        (PAIRS, [ids(1, 3)], "targets"),
        (PAIRS, [ids(1, 3), ids(2, 3)], "2 targets for 1"),
        (PAIRS, [ids(1, 3), ids(1, 3, 99)], "targets contain 99"),
        (PAIRS, [ids(1, 3), ids(1, 3), {"decoder_attention_mask": ids(1, 5)}], "(1, 5)"),
        (IMAGES, [torch.rand(3, 32, 32)], "(3, 32, 32)"),
        (IMAGES, [torch.rand(1, 1, 32, 32)], "3 channels"),
        (IMAGES, [torch.zeros(1, 3, 32, 32, dtype=torch.uint8)], "torch.uint8"),
        (IMAGES, [ids(1, 3)], "(1, 3)"),
    ],
)
def test_wrong_inputs_of_a_model_are_one_line(
    spec: weft.Spec, inputs: list[object], words: str
) -> None:
    model = weft.build(spec).eval()
    *tensors, masks = inputs if isinstance(inputs[-1], dict) else [*inputs, {}]
    assert words in line_of(lambda: model(*tensors, **masks))


@pytest.mark.parametrize("prompts", [[1, 2], torch.tensor([1, 2]), ["a text"]])
def test_prompts_of_a_model_are_rows_of_ids(prompts: object) -> None:
    line_of(
        lambda: (
            weft.build(weft.gpt2("small", depth=1, width=8, heads=2, vocab_size=9))
            .eval()
            .generate(prompts, max_new_tokens=1)
        )
    )


@pytest.mark.parametrize(
    "call", [lambda m: m.embed("a", pooling="foo"), lambda m: m.embed("a", batch_size=0)]
)
def test_a_wrong_argument_of_a_method_is_one_line(decoder: weft.OpenModel, call: object) -> None:
    line_of(lambda: call(decoder))


# Errors of what commands call too


def texts_without_a_label(folder: Path) -> str:
    path = folder / "texts.csv"
    path.write_text("a,b,c\n" + "one sentence here,another one,a third text\n" * 4)
    return str(path)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, data: weft.evaluate(m), ("task=", "data=")),
        (lambda m, data: weft.evaluate(m, task="clasify"), ('task="clasify"', "'classify'")),
        (lambda m, data: weft.evaluate(m, data, task="classify"), ('weft.tune("small"', "data=")),
        (lambda m, data: weft.tune("demo", data, lr=3e-4), ("'learning_rates'",)),
        (lambda m, data: weft.tune("demo", data, task="clasify"), ('task="clasify"',)),
        (lambda m, data: weft.tune("demo", data), ("columns=(",)),
        (lambda m, data: weft.tune("demo", data, image_size=8), ("image_size",)),
        (lambda m, data: weft.load_recipe("recipes/gpt_char.py", "lr=3"), ("lr=3", "optimiser.lr")),
        (lambda m, data: weft.load_recipe("recipes/gpt_char.py", ["steps"]), ("path=value",)),
        (lambda m, data: weft.open(3), ("3",)),
        (lambda m, data: weft.train("recipe.py", None), ("weft.load_recipe",)),
        (lambda m, data: weft.save(m, "out"), ("weft.open(…).model",)),
        (lambda m, data: m.generate("the man", max_new_tokens=9999), ("max_new_tokens",)),
        (
            lambda m, data: ready(None, "bert").model.generate([[5]], max_new_tokens=1),
            ("no decoder",),
        ),
    ],
)
def test_an_error_in_python_names_calls(
    decoder: weft.OpenModel, tmp_path: Path, call: object, words: tuple[str, ...]
) -> None:
    line = line_of(lambda: call(decoder, texts_without_a_label(tmp_path)))
    for word in words:
        assert word in line
    assert not re.search(r"--[a-z]|\bweft [a-z]", line)


@pytest.mark.parametrize(
    ("at_the_command_line", "here"),
    [
        ("give lower --learning-rates", "give lower learning_rates"),
        ("say --columns WORDS TAGS", 'say columns=("WORDS", "TAGS")'),
        ("with weft tune m --task tag --data FILE", 'with weft.tune("m", task="tag", data="FILE")'),
        ("weft evaluate m --data FILE scores it", 'weft.evaluate("m", data="FILE") scores it'),
        ("use weft classify m IMAGE", 'use weft.open("m").classify("IMAGE")'),
        (
            "train one with weft train a.py:b",
            "train one with weft.train(recipe, weft.prepare(recipe.data)) where recipe = "
            'weft.load_recipe("a.py:b")',
        ),
        ("give --set steps=20", 'give weft.replace_path(recipe, "steps", 20)'),
        ("leave --task out", "leave task out"),
        ("run weft prepare --overwrite", "run weft prepare --overwrite"),
        ("start torchrun --nproc-per-node N", "start torchrun --nproc-per-node N"),
    ],
)
def test_commands_and_options_become_calls_and_arguments(
    at_the_command_line: str, here: str
) -> None:
    assert in_python(at_the_command_line) == here


def test_an_error_keeps_its_type_and_its_steps() -> None:
    class Other(ValueError):
        pass

    @python_errors(data="on")
    def steps() -> Iterator[int]:
        yield 1
        raise Other("give --data FILE")

    running = steps()
    assert next(running) == 1
    with pytest.raises(Other, match=r'^give on="FILE"$'):
        next(running)


def test_what_a_run_says_in_python_names_calls_at_each_step_too() -> None:
    """`weft.train` checks its arguments at the call, so it is a function that returns a
    generator.
    """
    said = list[str]()

    def steps(report: Callable[[str], None]) -> Iterator[int]:
        report("--set threads=4 keeps their number")
        yield 1
        raise ValueError("start a new run with weft train --output FOLDER")

    @python_reports
    @python_errors(output="directory")
    def train(*, report: Callable[[str], None] = said.append) -> Iterator[int]:
        return steps(report)

    running = train()
    assert next(running) == 1
    assert said == ['weft.replace_path(recipe, "threads", 4) keeps their number']
    with pytest.raises(
        ValueError, match=r"^start a new run with weft\.train with another directory$"
    ):
        next(running)


def test_at_the_command_line_an_error_names_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "demo", "--data", texts_without_a_label(tmp_path)]) == 2
    assert "--columns TEXT" in capsys.readouterr().err
