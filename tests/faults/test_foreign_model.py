"""A model folder of another run inside a finished run is not taken for the run's own, and is never
overwritten.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft import cli
from weft import recipe as R

from .. import whole_runs
from .runs import gpt, train
from .test_run_folder import held, own


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[R.Recipe, Path]:
    """Two finished runs that differ in their seed alone, and a published model."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = own(folder / "data", steps=3)
    train(recipe, folder / "mine")
    train(replace(recipe, seed=1), folder / "other")
    weft.save(weft.build(gpt()), folder / "published", to="hf")
    shutil.copy(folder / "mine/model/tokenizer.json", folder / "published")
    return recipe, folder


def take(source: str) -> Callable[[Path, Path], None]:
    def put(folder: Path, run: Path) -> None:
        shutil.rmtree(run / "model")
        shutil.copytree(folder / source, run / "model")

    return put


FOREIGN = {"of another run": take("other/model"), "published": take("published")}
VERBS = {
    "generate": "generate {run} a --max-new-tokens 2",
    "evaluate": "evaluate {run}",
    "export": "export {run} {run}/../out",
    "resume": "resume {run}",
    "resume, longer": "train {recipe} --output {run} --set steps=5",
    "the folder itself": "generate {run}/model a --max-new-tokens 2",
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("verb", VERBS)
def test_a_foreign_model_in_a_finished_run_is_refused_and_kept(
    verb: str,
    kind: str,
    runs: tuple[R.Recipe, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[1] / "mine", run)
    FOREIGN[kind](runs[1], run)
    (tmp_path / "recipe.json").write_text(runs[0].to_json())
    before = {name: digest for name, digest in held(run).items() if name != "lock"}
    command = VERBS[verb].format(run=run, recipe=tmp_path / "recipe.json")
    assert cli.main(command.split()) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if str(run / "model") in x]
    assert f"weft resume {run}" in line
    assert {name: digest for name, digest in held(run).items() if name != "lock"} == before


def test_a_foreign_model_in_an_unfinished_run_is_not_opened_and_leaves_nothing_at_its_end(
    runs: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    recipe = replace(runs[0], checkpoints=R.Checkpoints(every_steps=1))
    for event in whole_runs.train(recipe, run):
        if event.step == 2:
            break
    own_state = weft.open(str(run)).model.state_dict()
    shutil.copytree(runs[1] / "other/model", run / "model")
    (run / "model" / "preprocessor_config.json").write_text("{}")
    opened = weft.open(str(run)).model.state_dict()
    assert all(tensor.equal(own_state[name]) for name, tensor in opened.items())
    assert cli.main(["resume", str(run)]) == 0
    mine = {path.name for path in (runs[1] / "mine/model").iterdir()}
    assert {path.name for path in (run / "model").iterdir()} == mine


def test_a_model_that_is_the_runs_own_is_used_wherever_it_is(
    runs: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    """Also a copy, one that the user changed (without manifest), and a run without the record, of
    an earlier version.
    """
    shutil.copytree(runs[1] / "mine/model", tmp_path / "elsewhere/model")
    weft.load(tmp_path / "elsewhere/model")
    shutil.copytree(runs[1] / "mine", tmp_path / "run")
    (tmp_path / "run/model/manifest.json").unlink()
    weft.load(tmp_path / "run/model")
    take("other/model")(runs[1], tmp_path / "run")
    with pytest.raises(ValueError):
        weft.load(tmp_path / "run/model")
    (tmp_path / "run/finished.json").unlink()
    weft.load(tmp_path / "run/model")
