"""Reproduce the papers' tables of variations at small scale, and compare the direction of each
effect with the paper.

    python -m benchmarks.tables transformer [--seeds 3] [--rows base heads_1 …] [--output runs]
        [--receipt FILE]
    python -m benchmarks.tables masking|steps|inputs|detr …

transformer: perplexity per piece and BLEU of Multi30k's validation pairs, greedy, of the first 200
(arXiv:1706.03762, table 3). masking:     F1 of named entities, everything tuned or a new head alone
(arXiv:1810.04805, table 8). steps:       the same after fewer and after more steps of pre-training
(arXiv:1810.04805, figure 5). inputs:      accuracy of SST-2 and SICK after each of RoBERTa's inputs
(arXiv:1907.11692, table 2). detr:        AP and AP at .5 of digits in small scenes
(arXiv:2005.12872, tables 3 and 4).

A row is a recipe of recipes/tables/. Its difference from the base row counts as "same" within the
margin which its file names for the paper's figures; here within one standard error of the
difference, and within 1 % of the base row's value. Finished runs are reused, so a repeated command
continues after an interruption. --quick takes three steps of each run. The last line is JSON.
"""

import json
import math
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import weft
from weft import recipe as R
from weft.data.preparing.prepare import prepare
from weft.data.shards.store import open_store
from weft.metrics.perplexity import perplexity
from weft.metrics.translation import bleu
from weft.plan.cost import run_flops
from weft.runs.logs.log import read_log
from weft.tasks.task import EvaluationData, predict

from . import command, receipt
from .trials import parse, positive_int, train, trial_parser

ROOT = Path(__file__).parents[1]
SAME = 0.01  # of the base row's value, measured here
TRANSLATED = 200
TUNING_STEPS = 150
TAGGED = 0.3
Measures = dict[str, float]


class Trial(NamedTuple):
    """A row with one seed: its recipe, and where its runs are."""

    table: str
    recipe: R.Recipe
    output: Path
    quick: bool

    @property
    def folder(self) -> Path:
        return self.output / self.recipe.name

    @property
    def tokenizer(self) -> Path:
        """One file for all rows, so that what they are tuned on is prepared once."""
        return self.output / f"table-{self.table}-tokenizer.json"


def translation(trial: Trial) -> Measures:
    """Perplexity without label smoothing, and BLEU."""
    opened = weft.open(train(trial.recipe, trial.output, trial.quick), device="cpu")
    assert opened.recipe is not None
    data = opened.recipe.data
    assert isinstance(data.valid, R.Source)
    store = open_store(prepare(data).folder, "valid")
    losses = [loss for row in predict(opened, opened.recipe.task, store) for loss, _ in row]
    pairs = EvaluationData(store, data.valid).rows()[:TRANSLATED]
    translations = opened.translate([pair["source"] for pair in pairs], num_beams=1)
    scores = dict(bleu(translations, [pair["target"] for pair in pairs], lowercase=True))
    return {
        "perplexity": float(dict(perplexity(losses))["perplexity"]),
        "bleu": float(scores["BLEU (lower-cased)"]),
    }


def tune(trial: Trial, name: str, target: R.Recipe, **changes: Any) -> float:
    """Fine-tune a trained row on the task of another recipe; return the metric on that recipe's
    validation data.
    """
    model = weft.with_dropout(trial.recipe.model, 0.1)
    recipe = replace(
        target,
        name=f"{trial.recipe.name}-{name}",
        model=replace(model, head=target.model.head),
        data=replace(target.data, tokenizer=R.TokenizerFile(path=str(trial.tokenizer))),
        batch=R.FixedBatch(size=32, length=64),
        steps=TUNING_STEPS,
        schedule=R.LinearSchedule(warmup_steps=TUNING_STEPS // 10),
        checkpoints=R.Checkpoints(every_steps=TUNING_STEPS, keep=1),
        precision="fp32",
        seed=trial.recipe.seed,
        eval_every=None,
        init_from=str(trial.folder / "model"),
        **changes,
    )
    lines = read_log(train(recipe, trial.output, trial.quick) / "log.jsonl")
    metric = recipe.metric
    assert metric is not None
    return float([line["valid"][metric] for line in lines if "valid" in line][-1])


def pretrain(trial: Trial) -> None:
    folder = train(trial.recipe, trial.output, trial.quick)
    if not trial.tokenizer.exists():
        shutil.copy(folder / "model" / "tokenizer.json", trial.tokenizer)


def entities(trial: Trial) -> Measures:
    """F1 of entities on the dev set of CoNLL-2003, in per cent, after three tenths of its training
    sentences.
    """
    pretrain(trial)
    target = R.load_recipe(str(ROOT / "recipes" / "tag_conll2003.py"))
    assert isinstance(target.data.train, R.Source)
    few = replace(target.data.train, fraction=(0.0, TAGGED))
    target = replace(target, data=replace(target.data, train=few))
    head_alone = {"trainable": R.HeadOnly(), "optimiser": R.AdamW(lr=1e-2)}
    return {
        "fine-tuned": 100 * tune(trial, "tuned", target),
        "features": 100 * tune(trial, "features", target, **head_alone),
    }


def sentences(trial: Trial) -> Measures:
    """Accuracy on SST-2's dev set and on the last fifth of SICK, in per cent."""
    pretrain(trial)
    recipes = {"reviews": "classify_sst2", "entailment": "entail_sick"}
    return {
        name: 100 * tune(trial, name, R.load_recipe(str(ROOT / "recipes" / f"{file}.py")))
        for name, file in recipes.items()
    }


def objects(trial: Trial) -> Measures:
    """COCO's AP on the validation scenes, in per cent."""
    lines = read_log(train(trial.recipe, trial.output, trial.quick) / "log.jsonl")
    scores = [line["valid"] for line in lines if "valid" in line][-1]
    return {"AP": 100 * scores["ap"], "AP50": 100 * scores["ap50"]}


class Table(NamedTuple):
    file: str
    measure: Callable[[Trial], Measures]
    rows: tuple[str, ...] = ()  # (): those that the paper's table has


STEPS = ("steps_100", "steps_200", "base", "steps_800")
TABLES = {
    "transformer": Table("transformer", translation),
    "masking": Table("masking", entities),
    "steps": Table("masking", entities, STEPS),
    "inputs": Table("inputs", sentences),
    "detr": Table("detr", objects),
}


def load(file: str) -> ModuleType:
    path = ROOT / "recipes" / "tables" / f"{file}.py"
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(table: Table, trial: Trial) -> Measures:
    """Measure a row with one seed, or read what was measured before."""
    file = trial.output / f"{trial.recipe.name}.json"
    recipe = json.loads(trial.recipe.to_json())
    if not file.exists():
        trial.output.mkdir(parents=True, exist_ok=True)
        measures = table.measure(trial)
        file.write_text(json.dumps({"recipe": recipe, "measures": measures}))
    found = json.loads(file.read_text())
    if found.get("recipe") != recipe:
        raise ValueError(f"{file} is of another recipe; delete it, or give another --output")
    figures: Measures = found["measures"]
    return figures


def summary(values: list[float]) -> dict[str, Any]:
    return {
        "mean": round(statistics.mean(values), 4),
        "stdev": round(statistics.stdev(values), 4) if len(values) > 1 else None,
        "runs": [round(value, 4) for value in values],
    }


def direction(change: float, margin: float, better: str) -> str:
    if abs(change) <= margin:
        return "same"
    return "better" if (change < 0) == (better == "lower") else "worse"


def compare(
    row: dict[str, Any], base: dict[str, Any], better: str, margin: float
) -> dict[str, Any]:
    """Set what the paper says of a row beside what was measured here."""
    deviations = [part["stdev"] or 0.0 for part in (row, base)]
    error = math.hypot(*deviations) / math.sqrt(len(row["runs"]))
    here = direction(row["mean"] - base["mean"], max(SAME * base["mean"], error), better)
    if row["paper"] is None or base["paper"] is None:
        return row | {"here": here}
    says = direction(row["paper"] - base["paper"], margin, better)
    return row | {"paper says": says, "here": here, "agrees": says == here}


def collect(
    module: ModuleType, results: dict[str, list[Measures]], recipes: dict[str, R.Recipe]
) -> dict[str, Any]:
    """The table: per row its cost, and per measure mean, deviation and direction."""
    rows: dict[str, Any] = {}
    for name, runs in results.items():
        rows[name] = {
            "parameters": recipes[name].model.parameter_count(),
            "flops": run_flops(recipes[name]),
        }
        for measure in module.BETTER:
            paper = module.PAPER.get(name, {}).get(measure)
            rows[name][measure] = summary([each[measure] for each in runs]) | {"paper": paper}
    for name, row in rows.items():
        for measure, better in module.BETTER.items():
            if name != "base" and "base" in rows:
                base = rows["base"][measure]
                margin = module.MARGIN[measure]
                row[measure] = compare(row[measure], base, better, margin)
    return rows


def line(name: str, row: dict[str, Any], measures: list[str]) -> str:
    cells = []
    for measure in measures:
        part = row[measure]
        spread = "" if part["stdev"] is None else f" ± {part['stdev']:.2f}"
        says = f", paper {part['paper says']}" if "paper says" in part else ""
        cells.append(
            f"{measure} {part['mean']:.2f}{spread} ({part.get('here', 'reference')}{says})"
        )
    return f"{name:18} {row['parameters'] / 1e6:6.2f}M  {row['flops']:.2e} FLOP  {'  '.join(cells)}"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = trial_parser(__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--seeds", type=positive_int, default=3)
    parser.add_argument("--rows", nargs="+", help="rows to run (default: all of the table)")
    options = parse(parser, arguments)
    start_time = time.perf_counter()
    table = TABLES[options.table]
    module = load(table.file)
    recipes = {n: thing for n, thing in vars(module).items() if isinstance(thing, R.Recipe)}
    names = options.rows or table.rows or tuple(module.PAPER)
    for name in names:
        if name not in recipes:
            raise ValueError(f"--rows {name}: {options.table} has {', '.join(recipes)}")
    recipes = {name: recipes[name] for name in names}
    results: dict[str, list[Measures]] = {name: [] for name in names}
    work = [(seed, name) for seed in range(options.seeds) for name in names]
    for done, (seed, name) in enumerate(work, 1):
        recipe = replace(recipes[name], name=f"{recipes[name].name}-{seed}", seed=seed)
        trial = Trial(table.file, recipe, options.output, options.quick)
        results[name].append(measured(table, trial))
        left = (time.perf_counter() - start_time) / done * (len(work) - done)
        figures = ", ".join(f"{key} {value:.2f}" for key, value in results[name][-1].items())
        print(f"  {recipe.name}: {figures}; about {left:.0f} s left", flush=True)
    rows = collect(module, results, recipes)
    for name, row in rows.items():
        print(line(name, row, list(module.BETTER)), flush=True)
    if options.receipt:
        receipt.write(options.receipt, rows, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(rows))
    return rows


if __name__ == "__main__":
    command.run(main)
