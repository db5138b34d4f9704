"""Folders in and out: nothing is lost, nothing is guessed, and what is wrong is named in one
line.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import weft
from weft import spec as S
from weft.interop import tensor_files
from weft.interop.huggingface.hub import local_folder

IDS = torch.tensor([[3, 7, 11, 2, 9], [1, 4, 4, 8, 6]])
SMALL: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "vocab_size": 50}
SPECS: dict[str, S.Spec] = {
    "bert": weft.bert(**SMALL, hidden=32, positions=24),
    "gpt2": weft.gpt2(**SMALL, positions=24),
    "llama": weft.llama(**SMALL, kv_heads=1, hidden=24, tied=True),
    "t5": weft.t5(**SMALL, hidden=24, head_dim=8),
    "bloom": weft.bloom(**SMALL),
    "gemma2": weft.gemma2(**SMALL, kv_heads=1, head_dim=8, hidden=24, window=4),
    "qwen3": weft.qwen3(**SMALL, kv_heads=1, head_dim=8, hidden=24),
    "dinov2": weft.dinov2(depth=2, width=16, heads=2, image_size=28),
}
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
TABLE = "bert.embeddings.word_embeddings.weight"


def made(name: str = "bert", seed: int = 1) -> weft.Model:
    return weft.build(SPECS[name], seed=seed).eval()


@pytest.fixture
def mlm(tmp_path: Path) -> Path:
    """A BERT with its masked-language head, as Hugging Face stores it."""
    return weft.save(made(), tmp_path / "mlm")


def same(a: weft.Model, b: weft.Model) -> bool:
    ours = a.state_dict()
    theirs = b.state_dict()
    return (
        list(ours) == list(theirs)
        and all(torch.equal(ours[n], theirs[n]) for n in ours)
        and a.spec == b.spec
    )


def complaint(do: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as found:
        do()
    assert "\n" not in str(found.value)
    return str(found.value)


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    state = load_file(folder / WEIGHTS)
    change(state)
    save_file({n: t.contiguous() for n, t in state.items()}, folder / WEIGHTS)


def change_json(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


# There and back


@pytest.mark.parametrize("to", ["hf", "weft"])
@pytest.mark.parametrize("shard", [1, 5_000, 10**9])
def test_a_saved_model_loads_equal_in_one_file_or_in_shards(
    tmp_path: Path, to: str, shard: int
) -> None:
    model = made()
    weft.save(model, tmp_path, to=to, shard=shard)
    files = list(tmp_path.glob("*.safetensors"))
    assert (tmp_path / INDEX).exists() == (len(files) > 1) == (shard < 10**9)
    assert shard != 5_000 or all(f.stat().st_size < 8_000 for f in files)
    assert same(weft.load(tmp_path), model)


def deep_gpt() -> S.Spec:
    """A DeepNorm GPT: no family can say it."""
    plain = SPECS["gpt2"]
    scales = S.deepnorm_scales("decoder", decoder=2)
    norm = S.LayerNorm()
    look, feed = (
        S.get_path(plain, f"decoder.blocks.0.{name}.inner") for name in ("attention", "feedforward")
    )
    block = S.Block(
        attention=S.deepnorm_branch(norm, look, scales),
        feedforward=S.deepnorm_branch(norm, feed, scales),
    )
    return S.replace(plain, decoder=S.Stack(blocks=(block, block)))


def test_a_spec_without_a_family_is_saved_only_in_wefts_layout(tmp_path: Path) -> None:
    model = weft.build(deep_gpt()).eval()
    said = complaint(lambda: weft.save(model, tmp_path / "a"))
    assert 'to="weft"' in said
    assert not (tmp_path / "a").exists()
    back = weft.load(weft.save(model, tmp_path / "b", to="weft"))
    assert same(back, model)
    assert back.spec == deep_gpt()
    assert torch.equal(back(IDS), model(IDS))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_requested_dtype_and_device_are_used(mlm: Path, dtype: torch.dtype) -> None:
    model = weft.load(mlm, dtype=dtype)
    for name, tensor in made().state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.to(dtype))
    assert {p.device.type for p in weft.load(mlm, device="meta").parameters()} == {"meta"}


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_a_file_in_half_precision_loads(tmp_path: Path, stored: torch.dtype) -> None:
    model = made().to(stored)
    weft.save(model, tmp_path)
    assert json.loads((tmp_path / CONFIG).read_text())["dtype"] == str(stored).removeprefix(
        "torch."
    )
    assert load_file(tmp_path / WEIGHTS)[TABLE].dtype == stored
    found = weft.load(tmp_path)
    assert all(
        t.dtype == torch.float32 and torch.equal(t, model.state_dict()[n].float())
        for n, t in found.state_dict().items()
    )


def test_a_loaded_model_is_in_evaluation_mode_and_records_its_source(mlm: Path) -> None:
    model = weft.load(str(mlm))
    assert not model.training
    assert (model.family, model.origin) == ("bert", mlm)


def test_the_tokenizers_files_and_unknown_config_keys_are_carried_along(
    mlm: Path, tmp_path: Path
) -> None:
    for file in ("tokenizer.json", "vocab.txt", "special_tokens_map.json"):
        (mlm / file).write_text(f'{{"from": "{file}"}}')
    (mlm / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (mlm / "notes.md").write_text("mine")
    change_json(mlm / CONFIG, finetuning_task="names")
    there = weft.save(weft.load(mlm), tmp_path / "there")
    for file in ("tokenizer.json", "vocab.txt", "special_tokens_map.json", "tokenizer_config.json"):
        assert (there / file).read_bytes() == (mlm / file).read_bytes()
    assert not (there / "notes.md").exists()
    assert json.loads((there / CONFIG).read_text())["finetuning_task"] == "names"


# Heads and fresh parts


def test_a_fresh_head_starts_as_a_built_one_and_the_rest_comes_from_the_file(mlm: Path) -> None:
    head = S.ClassifierHead(num_labels=3)
    model = weft.load(mlm, head=head, new_parts={"head"}, seed=5)
    assert model.spec.head == head
    file = made().state_dict()
    built = weft.build(model.spec, seed=5).state_dict()
    assert {n for n in built if n.startswith("head.")} == {"head.out.weight", "head.out.bias"}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, (built if name.startswith("head.") else file)[name])
    assert model(IDS).shape == (2, 3)


@pytest.mark.parametrize("to", ["hf", "weft"])
def test_a_new_head_without_new_parts_raises_an_error_that_lists_its_tensors(
    tmp_path: Path, to: str
) -> None:
    weft.save(made(), tmp_path, to=to)
    said = complaint(lambda: weft.load(tmp_path, head=S.ClassifierHead(num_labels=3)))
    assert all(word in said for word in ("head.out.weight", "head.out.bias", "new_parts={'head'}"))
    assert weft.load(
        tmp_path, head=S.ClassifierHead(num_labels=3), new_parts="head"
    ).spec.head == S.ClassifierHead(num_labels=3)


def test_fresh_may_name_any_part_and_only_parts_that_exist(mlm: Path) -> None:
    model = weft.load(mlm, new_parts={"encoder.blocks.1", "source.segments"}, seed=7)
    file = made().state_dict()
    built = weft.build(model.spec, seed=7).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(
            tensor,
            (built if name.startswith(("encoder.blocks.1.", "source.segments.")) else file)[name],
        )
    said = complaint(lambda: weft.load(mlm, new_parts={"hat"}))
    assert "hat" in said
    assert "encoder, head, source" in said
    assert "encod" in complaint(lambda: weft.load(mlm, new_parts={"encod"}))


# Tensors that do not fit


@pytest.mark.parametrize("to", ["hf", "weft"])
def test_a_missing_an_extra_and_a_misshapen_tensor_are_each_named(tmp_path: Path, to: str) -> None:
    weft.save(made(), tmp_path, to=to)
    (tmp_path / "manifest.json").unlink(missing_ok=True)  # else the changed file itself is named
    key = TABLE if to == "hf" else "source.tokens.weight"
    whole = (tmp_path / WEIGHTS).read_bytes()
    for change, word in (
        (lambda s: s.pop(key), "source.tokens.weight"),
        (lambda s: s.update(odd=torch.ones(1)), "odd"),
        (lambda s: s.update({key: torch.ones(49, 16)}), key),
        (lambda s: s.update({key: torch.ones(50, 1)}), key),
        (lambda s: s.update({key: torch.ones(16, 50)}), key),
        (lambda s: s.update({key: torch.ones(50, 16, dtype=torch.int8)}), "source.tokens.weight"),
    ):
        (tmp_path / WEIGHTS).write_bytes(whole)
        change_tensors(tmp_path, change)
        assert word in complaint(lambda: weft.load(tmp_path))
    (tmp_path / WEIGHTS).write_bytes(whole)
    assert same(weft.load(tmp_path), made())


def test_a_layer_more_in_the_file_than_in_the_config_is_an_error(mlm: Path) -> None:
    change_json(mlm / CONFIG, num_hidden_layers=1)
    assert "bert.encoder.layer.1.attention.output.dense.bias" in complaint(lambda: weft.load(mlm))


def test_a_second_name_of_a_tensor_must_hold_the_same_numbers(mlm: Path) -> None:
    name = "cls.predictions.decoder.weight"
    change_tensors(mlm, lambda s: s.update({name: s[TABLE].clone()}))
    assert same(weft.load(mlm), made())
    change_tensors(mlm, lambda s: s[name].__setitem__((3, 3), 7.0))
    said = complaint(lambda: weft.load(mlm))
    assert name in said
    assert TABLE in said


@pytest.mark.parametrize(
    ("name", "head", "table"),
    [
        ("gpt2", "lm_head.weight", "transformer.wte.weight"),
        ("llama", "lm_head.weight", "model.embed_tokens.weight"),
        ("t5", "lm_head.weight", "shared.weight"),
        ("bloom", "lm_head.weight", "transformer.word_embeddings.weight"),
        ("gemma2", "lm_head.weight", "model.embed_tokens.weight"),
    ],
)
def test_the_tensors_decide_whether_a_head_is_tied(
    tmp_path: Path, name: str, head: str, table: str
) -> None:
    weft.save(made(name), tmp_path)
    change_tensors(tmp_path, lambda s: s.update({head: s[table].clone()}))
    assert same(weft.load(tmp_path), made(name))
    change_tensors(tmp_path, lambda s: s[head].add_(1))
    free = weft.load(tmp_path)
    assert not free.spec.head.tied
    assert torch.equal(
        free.state_dict()["head.out.weight"], made(name).state_dict()["source.tokens.weight"] + 1
    )


# Tied weights


def is_tied(model: weft.Model) -> bool:
    return not [n for n in model.state_dict() if n.startswith("head.out")] and len(
        list(model.parameters())
    ) == len(model.state_dict())


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_tied_weights_stay_tied_through_save_load_to_and_meta(tmp_path: Path, name: str) -> None:
    model = weft.load(weft.save(made(name), tmp_path))
    meta = weft.build(SPECS[name], device="meta").to_empty(device="cpu").eval()
    meta.load_state_dict(model.state_dict())
    for each in (
        model,
        model.to(torch.float64),
        meta,
        weft.load(tmp_path, dtype=torch.float64).to(torch.float32),
    ):
        assert is_tied(each)
        before = each(IDS)
        before[..., 5].sum().backward()
        gradient = each.source.tokens.weight.grad
        assert gradient[5].abs().sum() > 0  # row 5 is never read, only written
        with torch.no_grad():
            each.source.tokens.weight[5] += 1.0
        after = each(IDS)
        assert not torch.equal(after[..., 5], before[..., 5])
        assert torch.equal(after[..., 20], before[..., 20])
    files = load_file(tmp_path / WEIGHTS)
    # GPT-2 fuses query, key and value
    assert len(files) == len(model.state_dict()) - (0 if name != "gpt2" else 8)


# Configurations


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("bert", {"model_type": "rwkv"}, ("rwkv", "bert")),
        ("bert", {"hidden_act": "mish"}, ("mish", "hidden_act")),
        ("bert", {"architectures": ["BertForSleep"]}, ("BertForSleep", "BertFor")),
        ("bert", {"position_embedding_type": "relative_key"}, ("relative_key", "absolute")),
        ("bert", {"num_hidden_layers": "2"}, ("'2'", "depth")),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, ("yarn", "llama3")),
        ("gemma2", {"attn_logit_softcapping": -50.0}, ("softcap", "-50.0")),
        ("qwen3", {"use_sliding_window": True}, ("use_sliding_window", "True")),
    ],
)
def test_a_config_outside_the_design_space_is_refused_in_one_line_that_names_it(
    tmp_path: Path, name: str, keys: dict[str, Any], words: tuple[str, ...]
) -> None:
    weft.save(made(name), tmp_path)
    change_json(tmp_path / CONFIG, **keys)
    said = complaint(lambda: weft.load(tmp_path))
    assert str(tmp_path / CONFIG) in said
    assert all(word in said for word in words), said


@pytest.mark.parametrize("text", ["{", "[]", "\ud800"])
@pytest.mark.parametrize("file", [CONFIG, "weft.json", INDEX])
def test_a_broken_json_file_is_named(mlm: Path, file: str, text: str) -> None:
    (mlm / file).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert str(mlm / file) in complaint(lambda: weft.load(mlm))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"width": 0}, "width"),
        ({"widht": 16}, "widht"),
        ({"kind": "Modle"}, "Modle"),
        ({"kind": "LayerNorm"}, "width"),
        ({"source": {"kind": "Tokens"}}, "source"),
    ],
)
def test_a_wrong_spec_file_is_named_with_what_is_wrong(
    tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    weft.save(made(), tmp_path, to="weft")
    (tmp_path / "manifest.json").unlink()
    change_json(tmp_path / "weft.json", **change)
    said = complaint(lambda: weft.load(tmp_path))
    assert str(tmp_path / "weft.json") in said
    assert word in said


# Files


def test_an_empty_folder_and_a_file_are_refused(tmp_path: Path) -> None:
    assert CONFIG in complaint(lambda: weft.load(tmp_path))
    (tmp_path / "x").touch()
    assert "x is not a directory" in complaint(lambda: weft.load(tmp_path / "x"))
    assert "not a directory" in complaint(lambda: weft.load(tmp_path / "absent"))


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/x.safetensors", "sub/x.safetensors", "..", "model.bin", 3, None]
)
def test_an_index_that_names_anything_but_a_sibling_is_refused(mlm: Path, name: object) -> None:
    if isinstance(name, str) and "x." in name:  # a file really is there
        name = str(mlm.parent / "x.safetensors") if name.startswith("/") else name
        (mlm / "sub").mkdir()
        for target in (mlm.parent, mlm / "sub"):
            shutil.copy(mlm / WEIGHTS, target / "x.safetensors")
    (mlm / INDEX).write_text(
        json.dumps({"weight_map": dict.fromkeys(load_file(mlm / WEIGHTS), name)})
    )
    said = complaint(lambda: weft.load(mlm))
    assert INDEX in said
    assert repr(name) in said


def test_a_missing_shard_and_a_tensor_its_shard_does_not_hold_are_named(tmp_path: Path) -> None:
    weft.save(made(), tmp_path, shard=5_000)
    where = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    change_json(tmp_path / INDEX, weight_map=where | {"ghost": where[TABLE]})
    assert "ghost" in complaint(lambda: weft.load(tmp_path))
    (tmp_path / where[TABLE]).unlink()
    assert where[TABLE] in complaint(lambda: weft.load(tmp_path))


@pytest.mark.parametrize("keep", [0, 1, 8, 100, 0.5, -1])
def test_a_truncated_file_is_refused_with_its_path(mlm: Path, keep: float) -> None:
    whole = (mlm / WEIGHTS).read_bytes()
    (mlm / WEIGHTS).write_bytes(whole[: int(keep * len(whole)) if keep == 0.5 else int(keep)])
    assert str(mlm / WEIGHTS) in complaint(lambda: weft.load(mlm))


# Saving over something


@pytest.mark.parametrize(
    ("to", "shard", "then", "after"), list(product(("hf", "weft"), (5_000, 10**9), repeat=2))
)
@pytest.mark.parametrize("own", [True, False], ids=["into its origin", "over another"])
def test_saving_over_an_older_model_replaces_it(
    tmp_path: Path, to: str, shard: int, then: str, after: int, own: bool
) -> None:
    weft.save(made(seed=1), tmp_path / "a", to=to, shard=shard)
    weft.save(made(seed=1), tmp_path / "b")
    model = weft.load(tmp_path / ("a" if own else "b"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    weft.save(model, tmp_path / "a", to=then, shard=after)
    assert same(weft.load(tmp_path / "a"), model)
    assert not [p for p in (tmp_path / "a").iterdir() if p.name.startswith(".")]
    weft.save(weft.load(tmp_path / "a"), tmp_path / "a", to=then)
    assert same(weft.load(tmp_path / "a"), model)


def test_a_folder_may_be_saved_into_under_another_name_for_it(
    mlm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mlm / "vocab.txt").write_text("a")
    (mlm.parent / "link").symlink_to(mlm)
    monkeypatch.chdir(mlm.parent)
    model = weft.load("mlm")
    for name in ("./mlm", "link", mlm):
        weft.save(model, name)
        assert same(weft.load(mlm), model)
        assert (mlm / "vocab.txt").read_text() == "a"
    monkeypatch.chdir(mlm)  # the origin does not move with the working folder
    assert (weft.save(model, mlm.parent / "new") / "vocab.txt").exists()


def test_who_reads_the_old_file_is_not_disturbed_by_a_save_over_it(mlm: Path) -> None:
    model = weft.load(mlm)
    with safe_open(mlm / WEIGHTS, "pt") as reader:
        with torch.no_grad():
            model.source.tokens.weight.fill_(7)
        weft.save(model, mlm)
        assert torch.equal(reader.get_tensor(TABLE), made().state_dict()["source.tokens.weight"])
    assert (weft.load(mlm).source.tokens.weight == 7).all()


def test_a_failed_save_keeps_the_older_model(mlm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in mlm.iterdir()}
    real = tensor_files.write_tensor_file
    calls = []

    def full(*given: Any, **more: Any) -> None:
        calls.append(given)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(*given, **more)

    monkeypatch.setattr(tensor_files, "write_tensor_file", full)
    with pytest.raises(OSError, match="No space"):
        weft.save(made(seed=2), mlm, shard=5_000)
    assert {p.name: p.read_bytes() for p in mlm.iterdir()} == before


def test_a_save_removes_nothing_that_is_not_its_own(mlm: Path) -> None:
    for name in ("model_mine.safetensors", "notes.txt", "pytorch_model.bin"):
        (mlm / name).write_text("mine")
    weft.save(weft.load(mlm), mlm, to="weft", shard=5_000)
    assert all(
        (mlm / name).read_text() == "mine"
        for name in ("model_mine.safetensors", "notes.txt", "pytorch_model.bin")
    )


# The hub

OFFLINE = """
import time, weft.interop.loading as loading
start = time.perf_counter()
try: loading.load("some-one/no-such-model")
except ValueError as error: print(time.perf_counter() - start, error, sep="\\n")
"""


def test_a_hub_name_without_a_network_is_a_clear_error_within_ten_seconds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )
    seconds, said = done.stdout.strip().split("\n")
    assert float(seconds) < 10
    assert all(word in said for word in ("some-one/no-such-model", "directory", "network"))


@pytest.mark.parametrize("name", ["../up", "~/model", "/absent", "a/b/c", "./here"])
def test_a_name_that_can_only_be_a_path_is_never_sent_to_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *given, **_: asked.append(given)
    )
    monkeypatch.chdir(tmp_path)
    assert complaint(lambda: weft.load(name)).startswith(f"{name} is not a directory; give")
    assert not asked


def test_only_weights_and_tokenizer_files_are_downloaded_from_the_hub(
    mlm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def answer(name: str, **more: Any) -> str:
        asked.update(more, name=name)
        return str(mlm)

    monkeypatch.setattr("huggingface_hub.snapshot_download", answer)
    assert same(weft.load("some-one/model"), made())
    assert asked["name"] == "some-one/model"
    for file in (
        "a.bin",
        "a.pt",
        "a.py",
        "a.pkl",
        "a.h5",
        "a.msgpack",
        "a.onnx",
        "sub/a.bin",
        "a.npy",
    ):
        assert not [p for p in asked["allow_patterns"] if fnmatch(file, p)], file
    for file in (
        WEIGHTS,
        INDEX,
        CONFIG,
        "tokenizer.json",
        "vocab.txt",
        "merges.txt",
        "spiece.model",
        "source.spm",
    ):
        assert [p for p in asked["allow_patterns"] if fnmatch(file, p)], file


def test_a_fresh_head_does_not_ask_whether_the_old_one_was_tied(tmp_path: Path) -> None:
    model = weft.build(weft.bert(depth=1, width=16, heads=2, hidden=16, vocab_size=32, positions=8))
    weft.save(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = torch.zeros(32, 16)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="to which it is tied"):
        weft.load(tmp_path)
    assert weft.load(
        tmp_path, head=weft.ClassifierHead(num_labels=2), new_parts={"head"}
    ).spec.head == weft.ClassifierHead(num_labels=2)


@pytest.mark.parametrize(("name", "kept"), [("bert", torch.bfloat16), ("gemma2", torch.float32)])
def test_dtype_none_keeps_the_files_numbers(name: str, kept: torch.dtype, tmp_path: Path) -> None:
    """Gemma's offset by one is worked out in float32, or the way back would lose bits."""
    weft.save(weft.build(SPECS[name], dtype=torch.bfloat16), tmp_path)
    assert next(weft.load(tmp_path, dtype=None).parameters()).dtype == kept


def test_a_head_named_as_a_published_class_can_be_saved_for_it(tmp_path: Path) -> None:
    weft.save(weft.build(SPECS["bert"]), tmp_path / "a")
    tuned = weft.load(tmp_path / "a", head="BertForSequenceClassification", new_parts={"head"})
    config = json.loads((weft.save(tuned, tmp_path / "b") / CONFIG).read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    other = weft.load(
        tmp_path / "a",
        head=weft.TokenClassifierHead(num_labels=2, dropout=0.1, transform=weft.HeadTransform()),
        new_parts={"head"},
    )
    with pytest.raises(
        ValueError,
        match=r"nearest is bert: .*no published class with this TokenClassifierHead head .*name "
        r"the class: head='BertForToken",
    ):
        weft.save(other, tmp_path / "c")


def test_gemmas_norms_are_read_in_more_than_the_files_precision(tmp_path: Path) -> None:
    """1 + w of a bf16 file is worked out in fp64: in bf16 it would lose all but a few bits of w."""
    weft.save(weft.build(SPECS["gemma2"]), tmp_path)
    name = "model.layers.0.input_layernorm.weight"
    tensors = {n: t.bfloat16() for n, t in load_file(tmp_path / WEIGHTS).items()}
    tensors[name] = (torch.randn(16) * 0.1).bfloat16()
    save_file(tensors, tmp_path / WEIGHTS, metadata={"format": "pt"})
    found = weft.load(tmp_path).state_dict()["decoder.blocks.0.attention.before.weight"]
    assert (found.double() - 1 - tensors[name].double()).abs().max() < 2**-23


def test_a_mistyped_run_is_answered_with_the_runs_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first_run").mkdir(parents=True)
    (tmp_path / "runs" / "first_run" / "recipe.json").touch()
    with pytest.raises(
        ValueError, match="runs/first_rum is not a directory; did you mean 'runs/first_run'"
    ):
        local_folder("runs/first_rum")
