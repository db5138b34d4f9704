"""What a recipe can say of fine-tuning: rates by layer, a frozen trunk, low-rank updates, the best weights kept."""
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft import recipe as R
from weft import run
from weft import spec as S
from weft.interop.folder import load
from weft.layers.lowrank import LowRank, merged
from weft.model.model import build
from weft.prove import check
from weft.ready import ready
from weft.train import checkpoint as saves
from weft.train.adapt import adapt, begin_from
from weft.train.checkpoint import checkpoints, newest
from weft.train.log import read
from weft.train.optimise import Optimiser, below, blocks_of

from ..faults.runs import after_save, child, model_bytes, told
from .made import POOLED, bert, checkpoint, data, recipe

OPTIONS: dict[str, dict[str, Any]] = {
    "layers": {"optimiser": R.AdamW(rate=3e-3, layers=0.8)},
    "head": {"trained": R.HeadOnly()},
    "lora": {"trained": R.LoRA(rank=2, maps=("query", "key", "value", "out"))},
    "best": {"average": R.Best(metric="accuracy"), "evaluate": 3},
}


def finish(made: R.Recipe, out: Path) -> run.Made:
    held: list[run.Made] = []
    for _ in run.train(made, out, begun=lambda one, *_: held.append(one)):
        pass
    return held[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("tune")
    checkpoint(made / "start")
    return made


@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_with_the_option_that_was_killed_ends_bit_for_bit_as_one_that_was_not(name: str, folder: Path, tmp_path: Path) -> None:
    made = recipe(folder / "data", start=str(folder / "start"), **OPTIONS[name])
    whole = child(made, tmp_path / "whole")
    assert isinstance(whole, str), whole
    out = tmp_path / "hurt"
    assert child(made, out, after_save(out, 5, 8)) is None
    assert child(made, out, after_save(out, 15, 17)) is None
    assert child(made, out) == whole
    assert (told(out), model_bytes(out)) == (told(tmp_path / "whole"), model_bytes(tmp_path / "whole"))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_recipe_with_the_option_goes_to_json_and_back(name: str, tmp_path: Path) -> None:
    made = recipe(tmp_path, **OPTIONS[name])
    (tmp_path / "recipe.json").write_text(made.json())
    assert R.read(str(tmp_path / "recipe.json")) == made


def test_a_run_that_was_begun_before_the_options_existed_goes_on(tmp_path: Path) -> None:
    made = recipe(tmp_path / "data", batch=R.Rows(count=8, length=48))
    plain = json.loads(made.json())
    del plain["trained"], plain["optimiser"]["layers"], plain["batch"]["pool"]
    found = saves.read(saves.write(tmp_path, 5, {}, {"recipe": json.dumps(plain)}))
    run.refuse_other(found, made)
    with pytest.raises(ValueError, match="trained"):
        run.refuse_other(found, replace(made, trained=R.HeadOnly()))


# Rates by layer

MODELS = {"bert": lambda: bert(), "t5": lambda: weft.t5(depth=2, width=16, heads=2, hidden=32, vocabulary=40, head_width=8),
          "gpt2": lambda: weft.gpt2(depth=3, width=16, heads=2, hidden=32, vocabulary=40, positions=8),
          "swin": lambda: weft.swin(image=32, patch=2, window=4, width=8, depths=(1, 2), heads=(1, 2))}


@pytest.mark.parametrize("name", MODELS)
def test_every_trainable_parameter_is_in_exactly_one_group_with_its_own_rate(name: str) -> None:
    model = build(MODELS[name]())
    blocks, rate, share = blocks_of(model), 0.5, 0.8
    assert len(blocks) == {"bert": 3, "t5": 4, "gpt2": 3, "swin": 3}[name]
    made = Optimiser(R.AdamW(rate=rate, layers=share, decay=0.1), model)
    seen = [(made.names[p], group) for part in made.parts for group in part.param_groups for p in group["params"]]
    assert sorted(n for n, _ in seen) == sorted(n for n, p in model.named_parameters() if p.requires_grad)
    for own, group in seen:
        assert group["lr"] == pytest.approx(rate * share ** below(own, blocks))
        assert group["weight_decay"] == (0.1 if made.named[own].dim() >= 2 else 0.0)
    assert made.peak == rate


def test_block_i_of_n_is_n_minus_i_below_the_head_and_embeddings_lie_lowest() -> None:
    blocks = blocks_of(build(bert()))
    level = {name: below(name, blocks) for name, _ in build(bert()).named_parameters()}
    for i in range(3):
        assert {n for name, n in level.items() if name.startswith(f"encoder.blocks.{i}.")} == {3 - (i + 1)}
    assert {n for name, n in level.items() if name.startswith("source.")} == {3}
    assert {n for name, n in level.items() if name.startswith("head.")} == {0}
    t5 = blocks_of(build(MODELS["t5"]()))
    assert below("encoder.score.weight", t5) == 4
    assert below("decoder.norm.weight", t5) == 0
    swin = blocks_of(build(MODELS["swin"]()))
    assert below("encoder.merges.0.reduce.weight", swin) == 2


def test_muon_has_no_rates_by_layer() -> None:
    with pytest.raises(ValueError, match="Muon has one rate"):
        R.Muon(rate=1.0, other=R.AdamW(rate=1.0, layers=0.5))


# A frozen trunk

def test_a_frozen_trunk_does_not_change_by_a_bit_drops_nothing_and_gets_no_gradient(folder: Path, tmp_path: Path) -> None:
    made = run.make(recipe(folder / "data", start=str(folder / "start"), trained=R.HeadOnly()))
    before = {name: t.clone() for name, t in made.objective.state_dict().items()}
    trained = {name for name, p in made.objective.named_parameters() if p.requires_grad}
    assert trained == {n for n in before if n.startswith("model.head.")} == set(made.trainer.optimiser.named)
    x = []
    made.objective.model.head.register_forward_pre_hook(lambda _, given: x.append(given[0].x_BLD))
    next(iter(made.trainer))
    assert not x[0].requires_grad
    assert not any(m.training for n, m in made.objective.model.named_modules() if n.startswith(("source", "encoder")))
    assert made.objective.model.head.training
    after = made.objective.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == trained
    assert torch.equal(after["model.encoder.blocks.0.attention.inner.query.weight"],
                       load(folder / "start").state_dict()["encoder.blocks.0.attention.inner.query.weight"])


# Low-rank updates

def test_a_rank_that_is_not_low_is_refused() -> None:
    with pytest.raises(ValueError, match="rank = 16 is not low for a map of 16 × 16"):
        adapt(build(bert()), R.LoRA(rank=16))


def test_low_rank_updates_start_as_the_plain_model_and_only_they_and_the_head_are_trained() -> None:
    plain, low = build(bert()).eval(), build(bert()).eval()
    adapt(low, R.LoRA(rank=2))
    ids = torch.randint(0, 261, (3, 9))
    assert torch.equal(plain(ids), low(ids))
    trained = {n for n, p in low.named_parameters() if p.requires_grad}
    wanted = {f"encoder.blocks.{i}.attention.inner.{name}.{part}" for i in range(3) for name in ("query", "value")
              for part in ("narrow", "widen")}
    assert trained == wanted | {n for n, _ in low.named_parameters() if n.startswith("head.")}
    assert set(plain.state_dict()) == set(low.state_dict()) - wanted


def test_merged_weights_give_the_same_answers_and_scale_with_alpha_over_rank() -> None:
    model = build(bert()).eval()
    adapt(model, R.LoRA(rank=2, alpha=6.0, maps=("query", "key", "value", "out")))
    for part in model.modules():
        if isinstance(part, LowRank):
            assert part.scale == 3.0
            torch.nn.init.normal_(part.widen)
    ids = torch.randint(0, 261, (3, 9))
    whole = merged(model)
    assert not any(isinstance(part, LowRank) for part in whole.modules())
    assert any(isinstance(part, LowRank) for part in model.modules())
    assert (whole(ids) - model(ids)).abs().max() < 1e-5
    assert set(whole.state_dict()) == set(build(bert()).state_dict())


def test_the_exported_model_of_low_rank_training_is_plain_and_so_is_one_read_from_its_checkpoint(folder: Path, tmp_path: Path) -> None:
    made = finish(recipe(folder / "data", start=str(folder / "start"), trained=R.LoRA(rank=2), precision="fp32"), tmp_path)
    low, plain = made.objective.model.eval(), load(tmp_path / "model")
    assert not torch.equal(plain.state_dict()["encoder.blocks.0.attention.inner.query.weight"],
                           load(folder / "start").state_dict()["encoder.blocks.0.attention.inner.query.weight"])
    ids = torch.randint(0, 261, (3, 9))
    with torch.no_grad():
        assert (plain(ids) - low(ids)).abs().max() < 1e-5
        (tmp_path / "model").rename(tmp_path / "elsewhere")
        again = ready(tmp_path).model
        assert not any(isinstance(part, LowRank) for part in again.modules())
        assert torch.equal(again(ids), plain(ids))


# The best weights

def test_the_exported_model_is_the_one_that_did_best(folder: Path, tmp_path: Path) -> None:
    """The rate is so high at the end that the last weights are worse than some before them."""
    made = recipe(folder / "data", average=R.Best(metric="loss"), evaluate=4, optimiser=R.AdamW(rate=0.3), schedule=R.Constant(warmup=15),
                  steps=24, guard=R.Guard(budget=99))
    done = finish(made, tmp_path)
    lines = read(tmp_path / "log.jsonl")
    looks = {line["step"]: line["valid"]["loss"] for line in lines if "valid" in line}
    assert list(looks) == [4, 8, 12, 16, 20, 24]
    best = min(looks, key=lambda step: looks[step])
    assert best != 24
    assert lines[-1]["best"]["step"] == best
    assert lines[-1]["best"]["loss"] == looks[best]
    done.trainer.average = None
    again = run.look(done._replace(recipe=replace(made, average=None)))
    assert again is not None
    assert again["loss"] == pytest.approx(looks[best], abs=1e-6)
    kept = load(tmp_path / "model").state_dict()
    assert all(torch.equal(kept[n], t) for n, t in done.objective.model.state_dict().items())


def test_the_best_weights_are_in_every_checkpoint_so_that_no_retention_can_lose_them(folder: Path, tmp_path: Path) -> None:
    made = recipe(folder / "data", average=R.Best(metric="f1"), evaluate=3)
    finish(made, tmp_path)
    (found,) = checkpoints(tmp_path / "checkpoints")
    assert found.facts["best"]["step"] <= found.facts["validated"] == 18
    assert set(found.group("average")) == set(found.group("model"))


def test_a_proof_of_exact_resume_looks_where_the_run_did(folder: Path, tmp_path: Path) -> None:
    finish(recipe(folder / "data", average=R.Best(metric="accuracy"), evaluate=3, save=R.Saves(every=10, keep=2)), tmp_path)
    proof = check(tmp_path)
    assert proof.kept == proof.again


def test_a_look_that_a_stop_broke_off_is_made_up_for_before_the_next_step(folder: Path, tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(folder / "data", average=R.Best(metric="accuracy"), evaluate=5)
    finish(made, tmp_path / "whole")
    validate = run.validate

    def stopped(trainer: Any, *rest: Any) -> Any:
        trainer.stop = True
        return validate(trainer, *rest)

    monkeypatch.setattr(run, "validate", stopped)
    assert [event.step for event in run.train(made, tmp_path / "hurt")][-1] == 5
    found = newest(tmp_path / "hurt" / "checkpoints", pytest.fail)
    assert found is not None
    assert found.step == 5
    assert found.facts["validated"] == 0
    monkeypatch.setattr(run, "validate", validate)
    finish(made, tmp_path / "hurt")
    assert told(tmp_path / "hurt") == told(tmp_path / "whole")
    assert model_bytes(tmp_path / "hurt") == model_bytes(tmp_path / "whole")


def test_the_cadence_of_looks_cannot_change_where_it_decides_what_is_kept(folder: Path, tmp_path: Path) -> None:
    made = recipe(folder / "data", average=R.Best(), evaluate=5)
    found = saves.read(saves.write(tmp_path, 5, {}, {"recipe": made.json()}))
    with pytest.raises(ValueError, match="evaluate was 5"):
        run.refuse_other(found, replace(made, evaluate=4))


def test_a_metric_that_the_task_does_not_have_or_data_that_are_not_there_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="Classification has loss, accuracy, f1, matthews"):
        recipe(folder / "data", average=R.Best(metric="pearson"))
    with pytest.raises(ValueError, match="chooses by the validation data"):
        recipe(folder / "data", average=R.Best(), data=replace(data(folder / "data"), valid=None))


# Where it starts from

def test_a_pooler_that_was_trained_is_kept_and_a_head_of_another_kind_is_not(folder: Path, tmp_path: Path) -> None:
    pooled = load(folder / "start").state_dict()["head.transform.dense.weight"]
    made = run.make(recipe(folder / "data", start=str(folder / "start")))
    assert torch.equal(made.objective.model.state_dict()["head.transform.dense.weight"], pooled)
    words = S.Vocabulary(transform=S.Transform(activation="gelu"))
    guesser = build(bert(words), seed=3)
    weft.save(guesser, tmp_path / "words", to="weft")
    made = run.make(recipe(folder / "data", start=str(tmp_path / "words")))
    afresh = build(bert(POOLED), seed=0).state_dict()
    assert torch.equal(made.objective.model.state_dict()["head.transform.dense.weight"], afresh["head.transform.dense.weight"])
    assert torch.equal(made.objective.model.state_dict()["source.tokens.weight"], guesser.state_dict()["source.tokens.weight"])


PRETRAINED: dict[str, S.Model] = {
    "bert": weft.bert(depth=2, width=16, heads=2, hidden=32, vocabulary=40, positions=32),
    "electra": weft.electra(depth=2, width=16, heads=2, hidden=32, embedding=8, vocabulary=40, positions=32),
    "t5": weft.t5(depth=2, width=16, heads=2, hidden=32, head_width=8, vocabulary=40)}


@pytest.mark.parametrize("name", PRETRAINED)
def test_a_tagger_starts_with_every_weight_of_the_pre_trained_trunk_and_a_new_head(name: str, tmp_path: Path) -> None:
    spec, tags = PRETRAINED[name], S.Tags(outputs=9, dropout=0.1)
    before = build(spec, seed=1)
    weft.save(before, tmp_path / "model", to="weft")
    tagger = build(replace(S.with_dropout(spec, 0.1), decoder=None, target=None, head=tags), seed=2)
    new = {n: t.clone() for n, t in tagger.state_dict().items() if n.startswith("head.")}
    begin_from(tagger, str(tmp_path / "model"))
    trunk = {n: t for n, t in before.state_dict().items() if n.startswith(("source.", "encoder."))}
    assert new.keys() == {"head.out.weight", "head.out.bias"}
    assert tagger.state_dict().keys() == trunk.keys() | new.keys()
    assert all(torch.equal(t, (trunk | new)[n]) for n, t in tagger.state_dict().items())
