"""Fine-tuning options: layer-wise learning rates, frozen body, low-rank updates, best weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests import whole_runs
from weft import recipe as R
from weft import spec as S
from weft.inference.open_model import open_model
from weft.interop.loading import load
from weft.nn.layers.lora import LoRALinear, merge_lora
from weft.nn.layers.roles import parameter_facts
from weft.nn.model import build
from weft.runs import run, validation
from weft.runs.logs.log import read_log
from weft.runs.train import RunStopped
from weft.training.checkpoints import checkpoint as saves
from weft.training.checkpoints import compatibility
from weft.training.checkpoints.checkpoint import all_checkpoints, latest_checkpoint
from weft.training.optimisers.optimiser import Optimiser
from weft.training.trainable import freeze_untrained, initialise_from

from ..commands.tuned_data import POOLED, bert, checkpoint, data, recipe
from ..faults.runs import after_save, child, model_bytes, told

OPTIONS: dict[str, dict[str, Any]] = {
    "layers": {"optimiser": R.AdamW(lr=3e-3, layer_decay=0.8)},
    "head": {"trainable": R.HeadOnly()},
    "lora": {"trainable": R.LoRA(rank=2, target_modules=("query", "key", "value", "out"))},
    "best": {"average": R.BestCheckpoint(metric="accuracy"), "eval_every": 3},
}


def finish(made: R.Recipe, out: Path) -> run.Run:
    held: list[run.Run] = []
    for _ in whole_runs.train(made, out, on_start=lambda one, *_: held.append(one)):
        pass
    return held[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("tune")
    checkpoint(made / "start")
    return made


@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_with_the_option_that_was_killed_ends_bit_for_bit_as_one_that_was_not(
    name: str, folder: Path, tmp_path: Path
) -> None:
    made = recipe(folder / "data", init_from=str(folder / "start"), **OPTIONS[name])
    whole = child(made, tmp_path / "whole")
    assert isinstance(whole, str), whole
    out = tmp_path / "hurt"
    assert child(made, out, after_save(out, 5, 8)) is None
    assert child(made, out, after_save(out, 15, 17)) is None
    assert child(made, out) == whole
    assert (told(out), model_bytes(out)) == (
        told(tmp_path / "whole"),
        model_bytes(tmp_path / "whole"),
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_a_recipe_with_the_option_survives_a_json_round_trip(name: str, tmp_path: Path) -> None:
    made = recipe(tmp_path, **OPTIONS[name])
    (tmp_path / "recipe.json").write_text(made.to_json())
    assert R.load_recipe(str(tmp_path / "recipe.json")) == made


def test_a_run_from_before_the_options_existed_resumes(tmp_path: Path) -> None:
    made = recipe(tmp_path / "data", batch=R.FixedBatch(size=8, length=48))
    plain = json.loads(made.to_json())
    del plain["trainable"], plain["optimiser"]["layer_decay"], plain["batch"]["sort_pool"]
    found = saves.read(saves.write(tmp_path, 5, {}, {"recipe": json.dumps(plain)}))
    compatibility.refuse_other(found, made)
    with pytest.raises(ValueError, match="trainable"):
        compatibility.refuse_other(found, replace(made, trainable=R.HeadOnly()))


# Rates by layer

MODELS = {
    "bert": lambda: bert(),
    "t5": lambda: weft.t5(depth=2, width=16, heads=2, hidden=32, vocab_size=40, head_dim=8),
    "gpt2": lambda: weft.gpt2(depth=3, width=16, heads=2, hidden=32, vocab_size=40, positions=8),
    "swin": lambda: weft.swin(
        image_size=32, patch_size=2, window=4, width=8, depths=(1, 2), heads=(1, 2)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_trainable_parameter_is_in_exactly_one_group_with_its_own_rate(name: str) -> None:
    model = build(MODELS[name]())
    facts = parameter_facts(model)
    rate = 0.5
    share = 0.8
    assert (
        max(own.layers_above for own in facts.values())
        == {"bert": 3, "t5": 4, "gpt2": 3, "swin": 3}[name]
    )
    made = Optimiser(R.AdamW(lr=rate, layer_decay=share, weight_decay=0.1), model)
    seen = [
        (made.names[p], group)
        for part in made.optimisers
        for group in part.param_groups
        for p in group["params"]
    ]
    assert sorted(n for n, _ in seen) == sorted(
        n for n, p in model.named_parameters() if p.requires_grad
    )
    for own, group in seen:
        assert group["lr"] == pytest.approx(rate * share ** facts[own].layers_above)
        assert group["weight_decay"] == (0.1 if made.parameters[own].dim() >= 2 else 0.0)
    assert made.peak_lr == rate


def test_layer_depth_counts_from_the_head_to_the_embeddings() -> None:
    level = {name: facts.layers_above for name, facts in parameter_facts(build(bert())).items()}
    for i in range(3):
        assert {n for name, n in level.items() if name.startswith(f"encoder.blocks.{i}.")} == {
            3 - (i + 1)
        }
    assert {n for name, n in level.items() if name.startswith("source.")} == {3}
    assert {n for name, n in level.items() if name.startswith("head.")} == {0}
    t5, swin = (parameter_facts(build(MODELS[name]())) for name in ("t5", "swin"))
    assert t5["encoder.position_bias.weight"].layers_above == 4
    assert t5["decoder.norm.weight"].layers_above == 0
    assert swin["encoder.merges.0.reduce.weight"].layers_above == 2


def test_muon_has_no_rates_by_layer() -> None:
    with pytest.raises(ValueError, match="Muon uses one learning rate"):
        R.Muon(lr=1.0, other=R.AdamW(lr=1.0, layer_decay=0.5))


# A frozen trunk


def test_a_frozen_trunk_does_not_change_by_a_bit_drops_nothing_and_gets_no_gradient(
    folder: Path, tmp_path: Path
) -> None:
    made = whole_runs.build_run(
        recipe(folder / "data", init_from=str(folder / "start"), trainable=R.HeadOnly())
    )
    before = {name: t.clone() for name, t in made.loss.state_dict().items()}
    trained = {name for name, p in made.loss.named_parameters() if p.requires_grad}
    assert (
        trained
        == {n for n in before if n.startswith("model.head.")}
        == set(made.trainer.optimiser.parameters)
    )
    x = []
    made.loss.model.head.register_forward_pre_hook(lambda _, given: x.append(given[0].x_BLD))
    next(iter(made.trainer))
    assert not x[0].requires_grad
    assert not any(
        m.training
        for n, m in made.loss.model.named_modules()
        if n.startswith(("source", "encoder"))
    )
    assert made.loss.model.head.training
    after = made.loss.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == trained
    assert torch.equal(
        after["model.encoder.blocks.0.attention.inner.query.weight"],
        load(folder / "start").state_dict()["encoder.blocks.0.attention.inner.query.weight"],
    )


# Low-rank updates


def test_a_rank_that_is_not_low_is_refused() -> None:
    with pytest.raises(ValueError, match="rank = 16 is too large for a matrix of 16 × 16"):
        freeze_untrained(build(bert()), R.LoRA(rank=16))


def test_low_rank_updates_start_as_the_plain_model_and_only_they_and_the_head_are_trained() -> None:
    plain = build(bert()).eval()
    low = build(bert()).eval()
    freeze_untrained(low, R.LoRA(rank=2))
    ids = torch.randint(0, 261, (3, 9))
    assert torch.equal(plain(ids), low(ids))
    trained = {n for n, p in low.named_parameters() if p.requires_grad}
    wanted = {
        f"encoder.blocks.{i}.attention.inner.{name}.{part}"
        for i in range(3)
        for name in ("query", "value")
        for part in ("narrow", "widen")
    }
    assert trained == wanted | {n for n, _ in low.named_parameters() if n.startswith("head.")}
    assert set(plain.state_dict()) == set(low.state_dict()) - wanted


def test_merged_weights_give_the_same_answers_and_scale_with_alpha_over_rank() -> None:
    model = build(bert()).eval()
    freeze_untrained(
        model, R.LoRA(rank=2, alpha=6.0, target_modules=("query", "key", "value", "out"))
    )
    for part in model.modules():
        if isinstance(part, LoRALinear):
            assert part.scale == 3.0
            torch.nn.init.normal_(part.widen)
    ids = torch.randint(0, 261, (3, 9))
    whole = merge_lora(model)
    assert not any(isinstance(part, LoRALinear) for part in whole.modules())
    assert any(isinstance(part, LoRALinear) for part in model.modules())
    assert (whole(ids) - model(ids)).abs().max() < 1e-5
    assert set(whole.state_dict()) == set(build(bert()).state_dict())


def test_the_exported_model_of_low_rank_training_is_plain_and_so_is_one_read_from_its_checkpoint(
    folder: Path, tmp_path: Path
) -> None:
    made = finish(
        recipe(
            folder / "data",
            init_from=str(folder / "start"),
            trainable=R.LoRA(rank=2),
            precision="fp32",
        ),
        tmp_path,
    )
    low = made.loss.model.eval()
    plain = load(tmp_path / "model")
    assert not torch.equal(
        plain.state_dict()["encoder.blocks.0.attention.inner.query.weight"],
        load(folder / "start").state_dict()["encoder.blocks.0.attention.inner.query.weight"],
    )
    ids = torch.randint(0, 261, (3, 9))
    with torch.no_grad():
        assert (plain(ids) - low(ids)).abs().max() < 1e-5
        (tmp_path / "model").rename(tmp_path / "elsewhere")
        again = open_model(tmp_path).model
        assert not any(isinstance(part, LoRALinear) for part in again.modules())
        assert torch.equal(again(ids), plain(ids))


# The best weights


def test_the_exported_model_is_the_one_that_did_best(folder: Path, tmp_path: Path) -> None:
    """The rate is so high at the end that the last weights are worse than some before them."""
    made = recipe(
        folder / "data",
        average=R.BestCheckpoint(metric="loss"),
        eval_every=4,
        optimiser=R.AdamW(lr=0.3),
        schedule=R.ConstantSchedule(warmup_steps=15),
        steps=24,
        guard=R.LossGuard(max_skipped_steps=99),
    )
    done = finish(made, tmp_path)
    lines = read_log(tmp_path / "log.jsonl")
    looks = {line["step"]: line["valid"]["loss"] for line in lines if "valid" in line}
    assert list(looks) == [4, 8, 12, 16, 20, 24]
    best = min(looks, key=lambda step: looks[step])
    assert best != 24
    assert lines[-1]["best"]["step"] == best
    assert lines[-1]["best"]["loss"] == looks[best]
    done.trainer.average = None
    done.recipe = replace(made, average=None)
    again = validation.validate_run(done)
    assert again is not None
    assert again["loss"] == pytest.approx(looks[best], abs=1e-6)
    kept = load(tmp_path / "model").state_dict()
    assert all(torch.equal(kept[n], t) for n, t in done.loss.model.state_dict().items())


def test_the_best_weights_are_in_every_checkpoint_so_that_no_retention_can_lose_them(
    folder: Path, tmp_path: Path
) -> None:
    made = recipe(folder / "data", average=R.BestCheckpoint(metric="f1"), eval_every=3)
    finish(made, tmp_path)
    (found,) = all_checkpoints(tmp_path / "checkpoints")
    assert found.state["best"]["step"] <= found.state["validated"] == 18
    assert set(found.tensors("average")) == set(found.tensors("model"))


def test_a_proof_of_exact_resume_looks_where_the_run_did(folder: Path, tmp_path: Path) -> None:
    finish(
        recipe(
            folder / "data",
            average=R.BestCheckpoint(metric="loss"),
            eval_every=3,
            checkpoints=R.Checkpoints(every_steps=10, keep=2),
        ),
        tmp_path,
    )
    proof = whole_runs.verify_resume(tmp_path)
    assert proof.saved_digest == proof.repeated_digest
    # the best weights are those of a validation that the proof repeats
    best = all_checkpoints(tmp_path / "checkpoints")[-1].state["best"]
    assert proof.first_step < best["step"] < proof.last_step


def test_a_look_that_a_stop_broke_off_is_made_up_for_before_the_next_step(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(folder / "data", average=R.BestCheckpoint(metric="accuracy"), eval_every=5)
    finish(made, tmp_path / "whole")
    validate = validation.validate

    def stopped(trainer: Any, *rest: Any) -> Any:
        trainer.stop_requested = True
        return validate(trainer, *rest)

    monkeypatch.setattr(validation, "validate", stopped)
    with pytest.raises(RunStopped, match="after step 5"):
        list(whole_runs.train(made, tmp_path / "hurt"))
    found = latest_checkpoint(tmp_path / "hurt" / "checkpoints", pytest.fail)
    assert found is not None
    assert found.step == 5
    assert found.state["validated"] == 0
    monkeypatch.setattr(validation, "validate", validate)
    for last in (5, 6):  # a check validates when the run did: not at step 5, but before step 6
        proof = whole_runs.verify_resume(tmp_path / "hurt")
        assert proof.last_step == last
        assert proof.saved_digest == proof.repeated_digest
        if last == 5:
            next(steps := whole_runs.train(made, tmp_path / "hurt"))
            steps.close()
    finish(made, tmp_path / "hurt")
    assert told(tmp_path / "hurt") == told(tmp_path / "whole")
    assert model_bytes(tmp_path / "hurt") == model_bytes(tmp_path / "whole")


def test_the_validation_interval_is_fixed_if_it_selects_weights(
    folder: Path, tmp_path: Path
) -> None:
    made = recipe(folder / "data", average=R.BestCheckpoint(), eval_every=5)
    found = saves.read(saves.write(tmp_path, 5, {}, {"recipe": made.to_json()}))
    with pytest.raises(ValueError, match="eval_every was 5"):
        compatibility.refuse_other(found, replace(made, eval_every=4))


def test_a_metric_that_the_task_does_not_have_or_data_that_are_not_there_are_refused(
    folder: Path,
) -> None:
    with pytest.raises(ValueError, match=r"'pearson'.* loss, accuracy, f1, matthews"):
        recipe(folder / "data", average=R.BestCheckpoint(metric="pearson"))
    with pytest.raises(ValueError, match="needs validation data"):
        recipe(
            folder / "data",
            average=R.BestCheckpoint(),
            data=replace(data(folder / "data"), valid=None),
        )


# Where it starts from


def test_a_pooler_that_was_trained_is_kept_and_a_head_of_another_kind_is_not(
    folder: Path, tmp_path: Path
) -> None:
    pooled = load(folder / "start").state_dict()["head.transform.dense.weight"]
    made = whole_runs.build_run(recipe(folder / "data", init_from=str(folder / "start")))
    assert torch.equal(made.loss.model.state_dict()["head.transform.dense.weight"], pooled)
    words = S.LMHead(transform=S.HeadTransform(activation="gelu"))
    guesser = build(bert(words), seed=3)
    weft.save(guesser, tmp_path / "words", to="weft")
    made = whole_runs.build_run(recipe(folder / "data", init_from=str(tmp_path / "words")))
    afresh = build(bert(POOLED), seed=0).state_dict()
    assert torch.equal(
        made.loss.model.state_dict()["head.transform.dense.weight"],
        afresh["head.transform.dense.weight"],
    )
    assert torch.equal(
        made.loss.model.state_dict()["source.tokens.weight"],
        guesser.state_dict()["source.tokens.weight"],
    )


PRETRAINED: dict[str, S.Spec] = {
    "bert": weft.bert(depth=2, width=16, heads=2, hidden=32, vocab_size=40, positions=32),
    "electra": weft.electra(
        depth=2, width=16, heads=2, hidden=32, embedding=8, vocab_size=40, positions=32
    ),
    "t5": weft.t5(depth=2, width=16, heads=2, hidden=32, head_dim=8, vocab_size=40),
}


@pytest.mark.parametrize("name", PRETRAINED)
def test_a_tagger_starts_with_every_weight_of_the_pre_trained_trunk_and_a_new_head(
    name: str, tmp_path: Path
) -> None:
    spec = PRETRAINED[name]
    tags = S.TokenClassifierHead(num_labels=9, dropout=0.1)
    before = build(spec, seed=1)
    weft.save(before, tmp_path / "model", to="weft")
    tagger = build(replace(S.with_dropout(spec, 0.1), decoder=None, target=None, head=tags), seed=2)
    new = {n: t.clone() for n, t in tagger.state_dict().items() if n.startswith("head.")}
    initialise_from(tagger, str(tmp_path / "model"))
    trunk = {n: t for n, t in before.state_dict().items() if n.startswith(("source.", "encoder."))}
    assert new.keys() == {"head.out.weight", "head.out.bias"}
    assert tagger.state_dict().keys() == trunk.keys() | new.keys()
    assert all(torch.equal(t, (trunk | new)[n]) for n, t in tagger.state_dict().items())
