"""Export parity of every shipped recipe after a few steps: transformers and sentence-transformers
read the same texts and images and give the same outputs. Both sides share only the directory.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers as hf
from benchmarks.export import earlier_runs, opened_by, recipes, short
from benchmarks.generated import WORDS, make_clone, make_data

import weft
from tests import whole_runs
from tests.inference.small import tokenizer
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.data.tokenizing.tokenizer import SpecialTokenFrame, Tokenizer, with_special_frame
from weft.evaluation.compare import compare_with_transformers
from weft.generate.text_generator import TextGenerator
from weft.inference.open_model import open_model
from weft.interop.huggingface import verify
from weft.interop.huggingface.equivalent_specs import find_family
from weft.interop.huggingface.sentence_transformers import read_modules
from weft.nn.model import build

RECIPES = recipes()
# how each opens
CLASSES = {
    "answer_squad:tiny": "BertForQuestionAnswering",
    "bart:tiny": "BartForConditionalGeneration",
    "bert:tiny": "BertForMaskedLM",
    "bert:mini": "BertForMaskedLM",
    "classify_sst2:tiny": "BertModel in CrossEncoder",
    "deit:tiny": "DeiTForImageClassificationWithTeacher",
    "distil_gpt:tiny": "GPT2LMHeadModel",
    "electra:tiny": "ElectraForPreTraining",
    "electra:mini": "ElectraForPreTraining",
    "entail_sick:tiny": "BertModel in CrossEncoder",
    "first_run:tiny": "GPT2LMHeadModel",
    "first_run:shakespeare": "LlamaForCausalLM",
    "gpt_arithmetic:tiny": "Starcoder2ForCausalLM",
    "gpt_bpe:tiny": "GPT2LMHeadModel",
    "gpt_char:tiny": "GPT2LMHeadModel",
    "gpt_char:best": "Starcoder2ForCausalLM",
    "gpt_char:demo": "LlamaForCausalLM",
    "gpt_char:large": "Starcoder2ForCausalLM",
    "instruct:tiny": "GPT2LMHeadModel",
    "prefer:tiny": "GPT2LMHeadModel",
    "prefer:reward": "GPT2ForSequenceClassification",
    "mae:tiny": "ViTMAEForPreTraining",
    "mae:cifar10": "ViTMAEForPreTraining",
    "roberta:tiny": "RobertaForMaskedLM",
    "similarity_stsb:tiny": "BertModel in CrossEncoder",
    "swin:tiny": "SwinForImageClassification",
    "t5:tiny": "T5ForConditionalGeneration",
    "t5_tasks:tiny": "T5ForConditionalGeneration",
    "t5:mini": "T5ForConditionalGeneration",
    "tag_conll2003:tiny": "BertForTokenClassification",
    "translate_multi30k:tiny": "MarianMTModel",
    "translate_multi30k:good": "PegasusForConditionalGeneration",
    "vit:tiny": "ViTForImageClassification",
    "vit:tiny_48": "ViTForImageClassification",
    "vit:fashion_mnist": "ViTForImageClassification",
    "vit:cifar10": "ViTForImageClassification",
}
# what transformers has no class for
STAYS = {
    **dict.fromkeys(("cct:tiny", "cct:residual", "hybrid:tiny"), "a stem of convolutions"),
    **dict.fromkeys(
        ("detr:tiny", "detr:anchors", "detr:denoising", "detr:bccd"),
        "a ResNet with group norm, which trains from scratch",
    ),
}
# as their tiny ones
QUICK = [
    name
    for name in RECIPES
    if name not in ("electra:mini", "bert:mini", "t5:mini", "gpt_char:large", *STAYS)
    and name != "prefer:reward"  # scores an answer after its question, not a text alone
]
ALIKE = {name: (CLASSES[name], type(RECIPES[name].data.tokenizer)) for name in QUICK}
FIRST = {alike: name for name, alike in reversed(ALIKE.items())}
# one recipe per class and kind of tokenizer in every run
LEAVING = [
    pytest.param(name, marks=() if FIRST[alike] == name else pytest.mark.slow)
    for name, alike in ALIKE.items()
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which every recipe finds its data; runs stay for the whole file."""
    folder = tmp_path_factory.mktemp("home")
    before = dict(os.environ)
    here = Path.cwd()
    os.environ |= {"WEFT_DATA": str(folder / "data"), "XDG_CACHE_HOME": str(folder / "cache")}
    os.chdir(folder)
    make_clone(folder)
    leave.cache_clear()
    yield folder
    os.chdir(here)
    os.environ.clear()
    os.environ |= before


@cache
def leave(name: str) -> tuple[Path, Path]:
    """The run and the folder in Hugging Face's layout, by the command."""
    recipe = RECIPES[name]
    make_data(Path("data").resolve(), recipe.data)
    for earlier in earlier_runs(recipe, RECIPES):
        leave(earlier)
    folder = Path("runs") / recipe.name
    out = Path("out") / recipe.name
    trained = replace(short(recipe), steps=8)
    if isinstance(recipe.task, R.Translation):  # so that a translation is not empty
        trained = replace(
            trained,
            steps=40,
            optimiser=R.AdamW(lr=3e-3),
            schedule=R.ConstantSchedule(),
            average=None,
        )
    list(whole_runs.train(trained, folder))
    assert name in STAYS or main(["export", str(folder), str(out), "--to", "hf"]) == 0
    return folder, out


def test_every_recipe_is_named_with_the_class_that_opens_it() -> None:
    assert {*CLASSES, *STAYS} == set(RECIPES)


def test_a_model_that_transformers_cannot_say_is_refused_with_what_differs() -> None:
    for name in STAYS:
        with pytest.raises(
            ValueError, match="no Hugging Face family can express this spec exactly"
        ):
            find_family(RECIPES[name].model)


@pytest.mark.parametrize("name", LEAVING)
def test_a_recipe_opens_elsewhere_with_the_same_tokens_pixels_and_answers(
    name: str, home: Path
) -> None:
    folder, out = leave(name)
    assert opened_by(out) == CLASSES[name]
    assert max(verify.verify(out).values()) <= 1e-5
    checks = compare_with_transformers(open_model(out), out)
    assert not [(check.name, check.first) for check in checks if check.differ]
    reads_text = isinstance(RECIPES[name].model.source, S.Tokens)
    assert {check.name for check in checks} >= (
        {"tokens", "embeddings"} if reads_text else {"images"}
    )
    if reads_text:  # and the run itself reads as what left it
        own = open_model(folder)
        text = "the red boat sings".upper() if "gpt_char" in name else "the red boat sings"
        found = hf.AutoTokenizer.from_pretrained(out)(text)["input_ids"]
        before, after = own.require_tokenizer.special_frame()
        assert found == [*before, *own.require_tokenizer.encode(text).tolist(), *after]


@pytest.mark.parametrize(
    "name",
    [
        "gpt_char:tiny",
        "gpt_bpe:tiny",
        "bart:tiny",
        "t5:tiny",
        "translate_multi30k:tiny",
        "translate_multi30k:good",
    ],
)
def test_special_ids_stand_in_config_and_generation_config(name: str, home: Path) -> None:
    _, out = leave(name)
    tokenizer = Tokenizer.load(out)
    spec = weft.load(out).spec
    config, generation = (
        json.loads((out / file).read_text()) for file in ("config.json", "generation_config.json")
    )
    marks = {"pad_token_id": "pad", "bos_token_id": "bos", "eos_token_id": "eos"}
    wanted = {
        key: tokenizer.special[mark] for key, mark in marks.items() if mark in tokenizer.special
    }
    # BART's decoder begins with the end, T5's with a pad, a translator's with a begin
    if spec.encoder is not None:
        firsts = {"bart": "eos", "t5": "pad", "translate_multi30k": "bos"}
        first = next(mark for start, mark in firsts.items() if name.startswith(start))
        wanted["decoder_start_token_id"] = tokenizer.special[first]
    assert wanted.items() <= config.items()
    assert wanted.items() <= generation.items()
    assert name == "gpt_char:tiny" or len(wanted) >= 3
    assert all(config[key] is None for key in marks if key not in wanted)
    opened = hf.AutoModelForSeq2SeqLM if spec.encoder else hf.AutoModelForCausalLM
    assert opened.from_pretrained(out).generation_config.eos_token_id == wanted.get("eos_token_id")


# Pipelines, as users type them


def pipe(task: str, out: Path) -> Any:
    return hf.pipeline(task, model=str(out), device="cpu")


def test_text_generation_equals_weft_generate(home: Path) -> None:
    for name in ("gpt_bpe:tiny", "first_run:tiny", "gpt_char:best"):
        folder, out = leave(name)
        prompt = "THE RED\nBOAT" if "char" in name else "the red boat"
        said = pipe("text-generation", out)(
            prompt, max_new_tokens=9, do_sample=False, return_full_text=True
        )[0]["generated_text"]
        assert (
            said
            == prompt + TextGenerator(open_model(folder)).complete([prompt], max_new_tokens=9)[0]
        )


def test_a_translation_by_beam_search_is_the_same_text(home: Path) -> None:
    for name in ("translate_multi30k:tiny", "translate_multi30k:good"):
        folder, out = leave(name)
        texts = [
            "the red boat",
            "A small HOUSE sings over a tree .",
            "old river under the house and the tree with a boat",
        ]
        writer = TextGenerator(open_model(folder))
        tokenizer = hf.AutoTokenizer.from_pretrained(out)
        model = hf.AutoModelForSeq2SeqLM.from_pretrained(out)
        for beams in (1, 4):
            given = tokenizer(texts, return_tensors="pt", padding=True)
            found = model.generate(
                **given, num_beams=beams, length_penalty=0.0, max_new_tokens=20, do_sample=False
            )
            ours = [
                answers[0].text
                for answers in writer.beam_search(
                    texts, num_beams=beams, length_penalty=0.0, max_new_tokens=20
                )
            ]
            assert tokenizer.batch_decode(found, skip_special_tokens=True) == ours
            assert any(ours)


def test_fixed_positions_are_exported_as_a_table(tmp_path: Path) -> None:
    """As after MAE, whose sinusoids ViT's table can hold."""
    spec = weft.vit(
        depth=2, width=32, heads=2, hidden=64, image_size=16, patch_size=4, classes=3,
        positions=S.SinusoidalPositions2D(),
    )  # fmt: skip
    model = weft.build(spec, seed=0).eval()
    weft.save(model, tmp_path / "hf", to="hf")
    other = hf.ViTForImageClassification.from_pretrained(tmp_path / "hf").eval()
    image = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(other(image).logits, model(image), atol=1e-6, rtol=1e-5)
    table = other.vit.embeddings.position_embeddings
    assert table.shape == (1, 17, 32)
    assert table[:, 0].count_nonzero() == 0  # of the class token


OWN = (
    (R.Normalize(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),),
    (R.Resize(size=40), R.CenterCrop(size=32), R.Normalize(mean=(0.5,) * 3, std=(0.5,) * 3)),
    (R.Resize(size=(32, 32), interpolation="bicubic"), R.Normalize()),
    (R.CenterCrop(size=32),),
    R.RandomCrop(size=32, padding=4).for_evaluation(),
)


@pytest.mark.parametrize("own", OWN, ids=["normalize", "crop", "squeeze", "crop alone", "padded"])
def test_an_image_goes_through_the_transforms_of_its_task_wherever_the_model_is(
    own: tuple[R.Transform, ...], tmp_path: Path
) -> None:
    """From a task to our folder, to Hugging Face's, and back: the same numbers each time."""
    from PIL import Image

    from weft.data.images.images import fit_to_size
    from weft.data.images.transforms import ImagePipeline
    from weft.interop.huggingface.image_processor import image_transforms

    spec = weft.vit(depth=1, width=16, heads=2, hidden=32, image_size=32, patch_size=8, classes=3)
    weft.save(weft.build(spec), tmp_path / "ours", to="weft", transforms=own)
    weft.save(weft.load(tmp_path / "ours"), tmp_path / "theirs")
    pixels = np.random.default_rng(0).integers(0, 256, (600, 800, 3), np.uint8)
    other = hf.AutoImageProcessor.from_pretrained(tmp_path / "theirs", backend="pil")
    for image in (Image.fromarray(pixels[:32, :32]), Image.fromarray(pixels)):
        seen = fit_to_size(own, 32)
        expected = ImagePipeline(seen)(image, None, np.random.default_rng(0))[0]
        theirs = other(image, return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose(theirs, expected, atol=1e-6)
        for folder in ("ours", "theirs"):
            steps = image_transforms(tmp_path / folder, spec)
            again = ImagePipeline(steps)(image, None, np.random.default_rng(0))[0]
            np.testing.assert_allclose(again, expected, atol=1e-7)


# sentence-transformers


def sentences(folder: Path, where: Path, modules: list[str], pooling: dict[str, Any]) -> Path:
    """A folder with the modules that a published one may have."""
    shutil.copytree(folder, where)
    kinds = {"Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    listed = [("Transformer", ""), *((kind, kinds[kind]) for kind in modules)]
    (where / "modules.json").write_text(
        json.dumps(
            [
                {
                    "idx": i,
                    "name": str(i),
                    "path": path,
                    "type": f"sentence_transformers.models.{kind}",
                }
                for i, (kind, path) in enumerate(listed)
            ]
        )
    )
    (where / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 7, "do_lower_case": False})
    )
    (where / "1_Pooling").mkdir()
    (where / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 128} | pooling)
    )
    return where


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "lasttoken"])
@pytest.mark.parametrize("normal", [True, False], ids=["normalised", "plain"])
def test_embed_follows_modules_json_and_exports_it(
    pooling: str, normal: bool, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = [
        "the red boat",
        "a tree",
        "the old house runs under the river and over the small tree with a red boat",
    ]
    spec = weft.bert(
        "tiny",
        vocab_size=64,
        positions=32,
        head=weft.NoHead(transform=weft.HeadTransform(activation="tanh")),
    )
    weft.save(weft.build(spec, seed=3), tmp_path / "bare")
    (tmp_path / "bare" / "tokenizer.json").write_text(wordpiece())
    old = {
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": pooling == "max",
        "pooling_mode_lasttoken": pooling == "lasttoken",
    }
    made = sentences(
        tmp_path / "bare",
        tmp_path / "made",
        ["Pooling", *(["Normalize"] if normal else [])],
        old if normal else {"pooling_mode": pooling},
    )
    weft.save(weft.load(made), tmp_path / "own", to="weft")
    again = weft.save(weft.load(tmp_path / "own"), tmp_path / "again")
    theirs = torch.from_numpy(
        sentence_transformers.SentenceTransformer(str(again), device="cpu").encode(
            texts, show_progress_bar=False
        )
    )
    for folder in (made, tmp_path / "own", again):
        assert main(["embed", str(folder), *texts, "--json"]) == 0
        ours = torch.tensor([row["vector"] for row in json.loads(capsys.readouterr().out)])
        assert (ours - theirs).abs().max() < 1e-5
    checks = compare_with_transformers(open_model(again), again)
    assert {check.name: check.differ for check in checks} == {"tokens": 0, "embeddings": 0}


def wordpiece() -> str:
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {
                name: i
                for i, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
            },
            unk_token="[UNK]",
        )
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return with_special_frame(str(inner.to_str()), SpecialTokenFrame([2], [3], [3]))


def test_an_unknown_module_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(
        json.dumps([{"path": "", "type": "a.Transformer"}, {"path": "1_LSTM", "type": "a.LSTM"}])
    )
    with pytest.raises(ValueError, match="names the module LSTM"):
        read_modules(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "../secret", "type": "a.Pooling"}]))
    with pytest.raises(ValueError, match="only sibling directories"):
        read_modules(tmp_path)


# What does not leave, and what stays


def test_an_unsupported_spec_names_the_nearest_family_and_its_differences() -> None:
    spec = weft.transformer(depth=1, width=32, heads=4, hidden=48, vocab_size=64, final=True)
    assert (
        find_family(
            weft.transformer(depth=1, width=32, heads=4, hidden=48, vocab_size=64)
        ).family.name
        == "marian"
    )
    with pytest.raises(
        ValueError,
        match=r"nearest is marian: encoder\.norm is LayerNorm\(.*\), there None, decoder\.norm is "
        r".*None; ",
    ):
        find_family(spec)


def test_marks_are_put_around_texts_and_a_file_that_has_them_keeps_its_bytes() -> None:
    marks = SpecialTokenFrame([2], [3], [3])
    text = wordpiece()
    inner = tokenizers.Tokenizer.from_str(text)
    pair = inner.encode("red boat", "tree")
    assert [pair.tokens, pair.type_ids] == [
        ["[CLS]", "red", "boat", "[SEP]", "tree", "[SEP]"],
        [0, 0, 0, 0, 1, 1],
    ]
    assert with_special_frame(text, marks) == text
    assert Tokenizer(with_special_frame(text, SpecialTokenFrame([], [3], [3]))).special_frame() == (
        [],
        [3],
    )


def test_a_folders_own_tokenizer_config_stays_as_it_is(tmp_path: Path) -> None:
    weft.save(weft.build(weft.bert("tiny", vocab_size=64, positions=16)), tmp_path / "a")
    (tmp_path / "a" / "tokenizer.json").write_text(wordpiece())
    (tmp_path / "a" / "tokenizer_config.json").write_text('{"tokenizer_class":  "BertTokenizer"}')
    weft.save(weft.load(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "b" / "tokenizer_config.json").read_bytes() == (
        tmp_path / "a" / "tokenizer_config.json"
    ).read_bytes()
    assert not (tmp_path / "b" / "generation_config.json").exists()


def test_verify_exits_with_one_for_another_tokenizer(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = leave("gpt_char:tiny")
    assert main(["verify", str(out)]) == 0
    assert "tokens" in capsys.readouterr().out
    shutil.copytree(out, tmp_path / "other")
    (tmp_path / "other" / "tokenizer_config.json").unlink()
    assert main(["verify", str(tmp_path / "other"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["checks"]["tokens"]["differ"] > 0
    assert max(found["differences"].values()) < 1e-5  # the outputs alone would not have shown it


@pytest.mark.parametrize(
    ("family", "head", "kind"),
    [
        ("bert", S.ClassifierHead(num_labels=2), "WordPiece"),
        ("gpt2", None, "ByteBPE"),
    ],
)
def test_a_model_of_few_positions_is_verified_with_texts_that_fit_it(
    family: str, head: S.ClassifierHead | None, kind: str, tmp_path: Path
) -> None:
    sizes = {"vocab_size": tokenizer(kind).size, "width": 32, "depth": 2, "heads": 4}
    spec = getattr(weft, family)("tiny" if family == "bert" else "small", positions=8, **sizes)
    model = build(replace(spec, head=head) if head else spec, seed=1)
    words = tokenizer(kind)
    text = tokenizer(kind).text
    if family == "bert":
        first = words.special["bos"]
        last = words.special["eos"]
        text = with_special_frame(text, SpecialTokenFrame([first], [last], [last]))
    folder = weft.save(model, tmp_path / "out", tokenizer=text)
    assert max(verify.verify(folder).values()) <= 1e-5
    checks = compare_with_transformers(open_model(folder), folder)
    assert not [(check.name, check.first) for check in checks if check.differ]
    assert all(check.compared > 5 for check in checks)
    assert {check.name for check in checks} > {"tokens", "embeddings"}
