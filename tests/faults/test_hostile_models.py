"""Untrusted model directories: memory is bounded by file sizes, nothing blocks, and links outside
the directory are rejected.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

import weft
from tests.faults.hostile import made_tokenizer
from weft import spec as S
from weft.cli import main
from weft.data.tokenizing.tokenizer import Tokenizer
from weft.generate import sandbox
from weft.generate.chat_template import render_chat
from weft.inference.open_model import open_model
from weft.interop.huggingface.companion_files import TOKENIZER_FILES
from weft.support.folder_files import find_file

pytestmark = pytest.mark.timeout(120)
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small BERT with its tokenizer."""
    made = made_tokenizer(0)
    size = len(made["model"]["vocab"])
    spec = weft.bert(
        depth=1, width=16, heads=2, hidden=16, vocab_size=size, positions=32, head=S.NoHead()
    )
    there = weft.save(weft.build(spec).eval(), tmp_path / "in")
    (there / "tokenizer.json").write_text(json.dumps(made))
    (there / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    return there


def refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that is refused; all that reaches the terminal, a library's own
    words too.
    """
    capfd.readouterr()
    assert main(words) == 2
    out, err = capfd.readouterr()
    assert not out
    assert err.startswith("weft: ")
    assert err.count("\n") == 1, err
    return err


def change(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


# Sizes


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"num_hidden_layers": 10**7}, "depth = 10,000,000; a stack has at most 4,096 blocks"),
        ({"num_hidden_layers": 4000}, "the weight files have only"),
        ({"vocab_size": 10**11}, "the weight files have only"),
        ({"num_labels": 10**12, "id2label": None}, "num_labels = 1000000000000"),
    ],
)
def test_a_config_that_claims_more_than_the_files_hold_builds_nothing(
    folder: Path, keys: dict[str, Any], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    change(folder / "config.json", **keys)
    assert words in refused(
        ["export", str(folder), str(folder.parent / "out"), "--to", "hf"], capfd
    )
    assert not (folder.parent / "out").exists()


def test_a_fresh_head_is_not_counted_among_what_the_files_must_hold(folder: Path) -> None:
    head = S.ClassifierHead(num_labels=100_000)
    assert (
        weft.load(folder, head=head, new_parts="head").spec.parameter_count()
        > (folder / "model.safetensors").stat().st_size
    )
    change(folder / "config.json", num_hidden_layers=4000)
    with pytest.raises(ValueError, match="the weight files have only"):
        weft.load(folder, head=head, new_parts="head")


def test_a_header_of_a_million_tensors_is_not_parsed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        b"{"
        + b",".join(
            b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(10**6)
        )
        + b"}"
    )
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    assert "lists 1,000,000 tensors" in refused(
        ["export", str(folder), str(folder.parent / "out"), "--to", "hf"], capfd
    )


def test_ids_of_a_tokenizer_are_bounded_by_its_vocabulary(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = made_tokenizer(3)
    made["model"]["vocab"]["words"] = 10**8
    (folder / "tokenizer.json").write_text(json.dumps(made))
    assert "up to 100,000,000" in refused(["embed", str(folder), "some words"], capfd)


def test_an_id_that_the_model_does_not_know_is_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = made_tokenizer(0)
    made["model"]["vocab"]["words"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(made))
    assert main(["embed", str(folder), "some"]) == 0  # other ids may stay unused
    assert "'words' has the id 5,000, but the model" in refused(
        ["embed", str(folder), "some words"], capfd
    )


# The tokenizers library


def test_a_panic_of_the_tokenizers_library_is_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = made_tokenizer(0)
    made["post_processor"]["special_tokens"] = {}
    (folder / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(BaseException, match="no entry found") as error:  # the file is live
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode("a")
    assert not isinstance(error.value, Exception)
    assert "is not a tokenizer.json: the tokenizers library: no entry found for key" in refused(
        ["embed", str(folder), "a"], capfd
    )


def test_characters_that_a_vocabulary_lacks_do_not_make_a_tokenizer_broken(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", -1.0)]))
    made.save(str(tmp_path / "tokenizer.json"))
    found = Tokenizer.load(tmp_path)
    assert found.encode("aa").tolist() == [0, 0]
    with pytest.raises(ValueError, match="the tokenizer: "):
        found.encode("b")


# Files that are none


@pytest.mark.parametrize("kind", ["pipe", "device", "dangling", "circle", "folder"])
@pytest.mark.parametrize(
    "name",
    [
        *FILES,
        "weft.json",
        "modules.json",
        "model.safetensors.index.json",
        "recipe.json",
        "merges.txt",
    ],
)
def test_what_is_no_regular_file_never_blocks(
    folder: Path, name: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(
            {"device": "/dev/zero", "dangling": folder / "nothing", "circle": path}[kind]
        )
    out = str(folder.parent / "out")
    if name == "recipe.json":  # a pipe of this name makes no run of a model's folder
        assert main(["export", str(folder), out, "--to", "hf"]) == 0
        return
    assert str(path) in refused(["export", str(folder), out, "--to", "hf"], capfd)


# Links


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "secret.json"
    path.parent.mkdir()
    path.write_text('{"secret": "canary"}')
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "name",
    [
        *TOKENIZER_FILES,
        "generation_config.json",
        "preprocessor_config.json",
        "config.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "1_Pooling/config.json",
    ],
)
def test_no_link_leads_out_of_a_model_folder(
    folder: Path, secret: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    out = folder.parent / "out"
    if name.startswith("1_"):
        (folder / "modules.json").write_text(
            json.dumps([{"type": "x.Pooling", "path": "1_Pooling"}])
        )
        (secret.parent / "config.json").write_text(secret.read_text())
        (folder / "1_Pooling").symlink_to(secret.parent)
    else:
        if name.startswith("sentence"):
            (folder / "modules.json").write_text("[]")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(secret)
    if name in ("generation_config.json",):  # BERT does not generate: it is not even read
        assert main(["export", str(folder), str(out), "--to", "hf"]) == 0
    else:
        assert "outside the folder" in refused(
            ["export", str(folder), str(out), "--to", "hf"], capfd
        )
    assert not [
        path for path in out.rglob("*") if path.is_file() and b"canary" in path.read_bytes()
    ]


def test_a_cache_of_the_hub_is_read_through_its_links(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """snapshots/<revision>/config.json -> ../../blobs/<hash>, as huggingface_hub lays it out; a
    link to other blobs is refused.
    """
    root = folder.parent / "cache" / "models--a--b"
    snapshot = root / "snapshots" / "0123abcd"
    for i, file in enumerate(sorted(folder.iterdir())):
        (root / "blobs").mkdir(parents=True, exist_ok=True)
        snapshot.mkdir(parents=True, exist_ok=True)
        (root / "blobs" / f"{i:040d}").write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("../../blobs") / f"{i:040d}")
    assert open_model(snapshot).require_tokenizer.size == open_model(folder).require_tokenizer.size
    assert main(["export", str(snapshot), str(folder.parent / "out"), "--to", "hf"]) == 0
    assert not [path for path in (folder.parent / "out").iterdir() if path.is_symlink()]
    other = folder.parent / "cache" / "models--c--d" / "blobs"
    other.mkdir(parents=True)
    (other / "x").write_text("{}")
    (snapshot / "merges.txt").symlink_to(other / "x")
    assert "outside the folder" in refused(
        ["export", str(snapshot), str(folder.parent / "out2"), "--to", "hf"], capfd
    )


def test_a_link_inside_the_folder_is_a_file_of_it(folder: Path) -> None:
    (folder / "real.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("real.json")
    assert find_file(folder, "tokenizer.json")
    assert open_model(folder).tokenizer


def test_a_private_file_stays_private_where_it_is_copied(folder: Path) -> None:
    (folder / "tokenizer.json").chmod(0o600)
    assert main(["export", str(folder), str(folder.parent / "out"), "--to", "hf"]) == 0
    assert stat.S_IMODE((folder.parent / "out" / "tokenizer.json").stat().st_mode) == 0o600


# Chat templates


def chat(folder: Path, template: str) -> list[int]:
    (folder / "chat_template.jinja").write_text(template)
    return render_chat(folder, Tokenizer.load(folder), [{"role": "user", "content": "some words"}])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ 1/0 }}", "division by zero"),
        ("{% include 'a' %}", "no loader"),
        ("{% import 'a' as b %}", "no loader"),
        ("{% if %}", "Expected"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ raise_exception('only users') }}", "only users"),
        ("{{ x.y.z }}", "undefined"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ 'a' * 10**10 }}", "MB"),
        ("{{ 'a' * 10**7 }}", "characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_what_a_template_does_wrong_is_one_line(folder: Path, template: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"the chat template of .* raised an error: ") as error:
        chat(folder, template)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert chat(folder, "{{ messages[0].content }}")


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 7 ** (7 ** 10) }}",
    ],
)
def test_an_endless_template_is_ended(
    folder: Path, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    with pytest.raises(ValueError, match=r"error: rendering takes more than (1 seconds|512 MB)"):
        chat(folder, template)
    assert chat(folder, "{{ messages[0].content }}")


def test_many_conversations_share_a_process(folder: Path) -> None:
    first = chat(folder, "{{ messages[0].content }}")
    from weft.generate.chat_template import SANDBOX

    assert SANDBOX.process
    number = SANDBOX.process.pid
    assert chat(folder, "{{ messages[0].content }} ") == first
    assert SANDBOX.process.pid == number


def test_weights_of_a_kind_that_torch_does_not_have_are_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_file({"a": np.zeros(4, np.float32)}, folder / "model.safetensors")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole.replace(b'"F32"', b'"I32"'))
    refused(["export", str(folder), str(folder.parent / "out"), "--to", "hf"], capfd)
