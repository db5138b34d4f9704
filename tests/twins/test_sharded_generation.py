"""Generation on ranks that share weights or layers gives the tokens of one process, and training continues after it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.data.batching import slice_of_rank
from weft.data.store import PreparedFolder
from weft.data.tokenizer import Tokenizer
from weft.generate.beam_search import beam_search
from weft.inference.evaluate import evaluate_model, split_of_run
from weft.model.loaded_model import LoadedModel
from weft.model.model import Model
from weft.ranks import Ranks
from weft.runs import run
from weft.tasks.predict import PredictOptions, gather_predictions
from weft.tasks.task import EvaluateOptions
from weft.training.parallel import DistributedRanks, init_ranks
from weft.training.sharded_evaluation import run_on_sharded_model

from ..faults.runs import Whole, ranks, whole
from .test_parallel import TWO

__all__ = ["whole"]
PROMPTS = [[7, 9, 11], [30, 31], [60], [12, 13, 14, 15, 16], [90, 8]]  # three here, two there
END = 77


def generate(model: Model, here: Ranks) -> list[Any]:
    """Greedy tokens and the best beam of every prompt, in order, on every rank."""
    picked = slice_of_rank(range(len(PROMPTS)), here.rank, here.size)
    rows = [PROMPTS[i] for i in picked]
    start = {} if model.encoder is None else {"decoder_inputs": [[3]] * len(rows)}
    # One rank has more to do than the other: its answers are longer.
    limits = [5 + 4 * i for i in picked]
    greedy = model.generate(rows, max_new_tokens=9, eos_ids=[END], **start)
    beams = beam_search(model, rows, num_beams=2, max_new_tokens=limits, eos_ids=[END], **start)
    best = [answers[0].tokens for answers in beams]
    every = gather_predictions(list(zip(picked, zip(greedy, best, strict=True), strict=True)), here)
    return [answers for _, answers in sorted(every)]


def follow(recipe: R.Recipe, here: DistributedRanks | None) -> dict[str, Any]:
    """Generate before training, train, generate again, evaluate by generation, and train on."""
    built = run.build_run(recipe, here)
    on, losses, answers = built.trainer.ranks, [], []
    for event in built.trainer:
        losses.append(event.loss)
        if event.step in (1, 3):
            answers.append(run_on_sharded_model(built.loss, on, generate))
        if event.step == 4:
            break
    metrics = {}
    if isinstance(recipe.task, R.Translation):
        tokenizer = Tokenizer(PreparedFolder(str(built.prepared_folder)).tokenizer())
        loaded = LoadedModel("run", built.loss.model, tokenizer, built.recipe, Path())
        data = split_of_run(built.recipe, built.prepared_folder, "train")

        def evaluate(_: Model, on: Ranks) -> dict[str, float]:
            options = EvaluateOptions(PredictOptions(ranks=on), num_beams=1)
            return dict(evaluate_model(loaded, recipe.task, data, options))

        metrics = run_on_sharded_model(built.loss, on, evaluate)
    built.trainer.drop_ddp()
    return {"losses": losses, "answers": answers, "metrics": metrics}


@pytest.mark.parametrize("name", ["causal", "translation, packed"])
def test_ranks_generate_the_tokens_of_one_process_and_score_the_same(
    name: str, whole: Whole, tmp_path: Path
) -> None:
    recipe = replace(whole.recipes[name], workers=0, average=None, eval_every=None)
    recipe = replace(recipe, optimiser=R.AdamW(lr=0.03))  # so that some answers end early

    def work() -> Any:
        with init_ranks(device="cpu") as here:
            return [follow(replace(recipe, parallel=grid), here) for grid in TWO]

    (one,) = ranks(recipe, tmp_path / "one", 1, lambda: follow(recipe, None))
    many = ranks(recipe, tmp_path / "many", 2, work)
    assert "answers" in one, one
    for there in many:
        assert isinstance(there, list), many
        for grid, result in zip(TWO, there, strict=True):
            assert result["answers"] == one["answers"], grid
            assert result["metrics"] == pytest.approx(one["metrics"]), grid
            assert result["losses"] == pytest.approx(one["losses"], rel=1e-6), grid
    assert len({str(answers) for answers in one["answers"]}) == 2  # training has changed them
