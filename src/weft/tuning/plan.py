"""From a checkpoint and data to a plan of trials: the head of the family's fine-tuning class, lengths from the data, the settings of
BERT's authors (arXiv:1810.04805, appendix A.3)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import recipe as R
from .. import spec as S
from ..data.files import find, strip_compression_suffix
from ..data.folder_files import find_file
from ..data.formats.squad import iterate_articles
from ..data.order import permute
from ..data.ownership import refuse_strange
from ..data.prepare import prepare
from ..data.quarantine import MAX_BAD_ROWS
from ..data.store import Store, open_store
from ..data.tokenizer import Tokenizer
from ..inference.open_model import open_model
from ..interop.describe import read_folder
from ..interop.hub import local_folder
from ..interop.saving import save
from ..kernels.devices import resolve_device, resolve_precision
from ..recipe.metrics import greater_is_better
from ..storage import write_if_changed
from ..tasks.base import max_row_length
from . import text_to_text
from .detect import DetectedData, detect_data
from .model import text_to_text_format, with_layer_mix, with_task_head

RESULTS_FILE = "tune.json"
MARK = ".tune"  # an empty file in a folder that a search made
ADAMW_LEARNING_RATES = (5e-5, 4e-5, 3e-5, 2e-5)
ADAFACTOR_LEARNING_RATES = (
    1e-2,
    3e-3,
    1e-3,
)  # of Adafactor, whose steps are relative to the weights: T5's authors fine-tune at 1e-3
SMALL, SEEDS = 10_000, 3  # on fewer rows than this, several seeds
VALIDATION_FRACTION = 0.1  # of the rows, where no validation data are given
LONGEST, WINDOW, POOLS = (
    512,
    384,
    32,
)  # tokens of a row, of a window of a context; batches that are sorted together


@dataclass(frozen=True)
class TuneOptions:
    """The options of `weft tune`, under the names they have there; None: from the data and the checkpoint."""

    checkpoint: str
    data: tuple[str, ...]
    valid: tuple[str, ...] = ()
    output: str | None = None
    task: str | None = None
    column_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    label: str | None = None
    source_prefix: str = ""  # before every source text: T5's name of a task
    label_texts: tuple[str, ...] = ()  # the text of each class, where a class is decoded as text
    metric: str | None = None
    learning_rates: tuple[float, ...] = ()
    seeds: int | None = None
    epochs: float = 3
    batch_size: int = 32
    max_length: int | None = None
    evals_per_epoch: int = 2  # validations per epoch
    dropout: float | None = None
    layer_mix: S.LayerMix | None = None  # which layers the head reads
    layer_decay: float | None = None
    lm_weight: float = 0.0  # of GPT's auxiliary next-token loss
    trainable: R.HeadOnly | R.LoRA | None = None
    device: str = "auto"
    precision: str = "auto"
    seed: int = 0
    max_bad_row_fraction: float = MAX_BAD_ROWS


class TunePlan(NamedTuple):
    """Everything that is decided before the first step. A trial is this recipe with another learning rate and seed."""

    folder: Path
    summary: str
    task: str
    metric: str
    learning_rates: tuple[float, ...]
    seeds: int
    recipe: R.Recipe
    train_rows: int
    valid_rows: int

    @property
    def best_of(self) -> Callable[..., Any]:
        """Return `max` or `min`, by the direction of the metric."""
        return max if greater_is_better(self.metric) else min

    def trial_recipe(self, lr: float, seed: int) -> R.Recipe:
        return replace(
            self.recipe,
            name=f"trial-{lr:g}-{seed}",
            seed=seed,
            optimiser=R.replace_path(self.recipe.optimiser, "lr", lr),
        )


def plan_tuning(options: TuneOptions, report: Any = None, progress: Any = None) -> TunePlan:
    """Detect the task, prepare the data and return the plan.

    Args:
        options: of `weft tune`.
        report: takes each line about what was detected.
        progress: called while the data is prepared.
    """
    resolve_device(options.device)  # before the work that takes time
    folder = Path(options.output or Path("runs") / default_run_name(options))
    refuse_strange(folder, MARK, RESULTS_FILE, "recipe.json")
    if (folder / "recipe.json").exists() and not (folder / RESULTS_FILE).exists():
        raise ValueError(
            f"{folder} is another run, which would be overwritten; give another --output"
        )
    start, tokenizer = resolve_checkpoint(options.checkpoint, folder)
    detected = detect_for_model(options, read_folder(start)[1])
    for line in (detected.summary, *detected.notes) if report else ():
        report(line)
    spec = with_layer_mix(with_task_head(read_folder(start)[1], start, detected, options), options)
    task = build_task_value(options, detected, spec, start)
    claim(folder)
    detected = (
        detected if detected.valid is not None else split_validation(detected, folder, options.seed)
    )
    most = min(options.max_length or LONGEST, max_row_length(spec) or LONGEST)
    row = detected.row
    if isinstance(row, R.ContextQuestions):
        most = min(most, WINDOW) if options.max_length is None else most
        row = R.ContextQuestions(
            max_length=most
            if options.max_length
            else question_window_length(detected, Tokenizer.load(tokenizer), most),
            stride=min(128, most // 2),
        )
    data = R.Data(
        rows=row,
        train=detected.train,
        valid=detected.valid,
        tokenizer=R.TokenizerFile(path=tokenizer),
        prepared_folder=str(folder / "prepared"),
        max_bad_row_fraction=options.max_bad_row_fraction,
    )
    prepare(data, report=progress)
    store, valid = (open_store(folder / "prepared", split) for split in ("train", "valid"))
    length = (
        row.max_length
        if isinstance(row, R.ContextQuestions)
        else options.max_length or row_length_quantile(store, row, most)
    )
    metric = options.metric or task.select_by(row)
    batch = R.FixedBatch(
        size=options.batch_size, length=length, sort_pool=POOLS * options.batch_size
    )
    recipe = build_recipe(options, task, spec, data, batch, len(store), str(start), metric)
    usual = (
        ADAFACTOR_LEARNING_RATES
        if isinstance(recipe.optimiser, R.Adafactor)
        else tuple(rate * lr_factor(options.trainable) for rate in ADAMW_LEARNING_RATES)
    )
    rates = tuple(dict.fromkeys(options.learning_rates)) or usual
    seeds = options.seeds or (SEEDS if len(store) < SMALL else 1)
    return TunePlan(
        folder,
        detected.summary,
        detected.task,
        metric,
        rates,
        seeds,
        recipe,
        len(store),
        len(valid),
    )


def lr_factor(trained: R.HeadOnly | R.LoRA | None) -> float:
    """A few new weights tolerate a higher learning rate than many trained ones: LoRA's table D.9 has 4e-4 and 5e-4; a linear head on features more."""
    return 100.0 if isinstance(trained, R.HeadOnly) else 10.0 if trained else 1.0


def detect_for_model(options: TuneOptions, spec: S.Spec) -> DetectedData:
    """Detect the task for this model. A decoder reads two texts and a score in both orders: GPT's similarity."""
    if (texts := text_to_text.detect_text_to_text(options, spec)) is not None:
        return texts
    similar = options.task == "similarity"
    detected = detect_data(
        options.data,
        options.valid,
        None if similar else options.task,
        options.column_names,
        options.columns,
        options.label,
        options.max_bad_row_fraction,
    )
    pair = isinstance(detected.row, R.LabelledTexts) and detected.row.second_text is not None
    if similar and not pair:
        raise ValueError(
            f"{options.data[0]}: --task similarity reads two texts and a label; name them: --columns TEXT TEXT LABEL"
        )
    if similar or (
        pair and detected.task == "regress" and options.task is None and spec.encoder is None
    ):
        hint = "" if similar else "; --task regress reads one order"
        return detected._replace(
            task="similarity",
            summary=f"{detected.summary.rpartition(': ')[0]}: similarity, read in both orders{hint}",
        )
    return detected


def build_task_value(
    tune_options: TuneOptions, detected: DetectedData, spec: S.Spec, start: Path
) -> R.Task:
    task, options = detected.kind, dict[str, Any]()
    names = {field.name for field in fields(task)}  # type: ignore[arg-type]
    if task.keeps_decoder and "input_format" in names:
        options["input_format"] = text_to_text_format(start, spec)
    if detected.task == "similarity":
        options["both_orders"] = True
    if tune_options.lm_weight:
        options["lm_weight"] = tune_options.lm_weight
        auxiliary = "lm_weight" in names and spec.decoder is not None
        if not auxiliary or read_folder(start)[1].head != S.LMHead(tied=True):
            raise ValueError(
                f"--lm-weight {tune_options.lm_weight:g} is for texts, pairs and endings of a decoder whose language modelling head is "
                "its token table, such as GPT-2; leave it out"
            )
    return task.for_model(spec, **options)


def choose_optimiser(options: TuneOptions, spec: S.Spec) -> R.AdamW | R.Adafactor:
    """T5's weights differ in size by a factor of 50, the token table's are the largest: AdamW's steps, equally large for all, hardly move
    the table (docs/log.md). Its authors fine-tune with Adafactor, whose steps are relative (arXiv:1910.10683, section 3.1.2). Low-rank
    updates start at zero, and layer-wise rates need AdamW: both keep it."""
    if (
        isinstance(spec.init, S.T5Init)
        and options.trainable is None
        and options.layer_decay is None
    ):
        return R.Adafactor(lr=ADAFACTOR_LEARNING_RATES[0])
    return R.AdamW(lr=ADAMW_LEARNING_RATES[0], layer_decay=options.layer_decay)


def build_recipe(
    options: TuneOptions,
    task: R.Task,
    spec: S.Spec,
    data: R.Data,
    batch: R.FixedBatch,
    rows: int,
    start: str,
    metric: str,
) -> R.Recipe:
    epoch = -(-rows // batch.size)
    steps = max(1, round(options.epochs * epoch))
    eval_every = max(1, epoch // options.evals_per_epoch)
    return R.Recipe(
        name="trial",
        model=spec,
        task=task,
        data=data,
        batch=batch,
        steps=steps,
        init_from=start,
        optimiser=choose_optimiser(options, spec),
        schedule=R.LinearSchedule(warmup_steps=steps // 10),
        trainable=options.trainable,
        average=R.BestCheckpoint(metric=metric),
        eval_every=eval_every,
        checkpoints=R.Checkpoints(keep=1),
        device=options.device,
        precision=resolve_precision(options.precision, resolve_device(options.device)),  # type: ignore[arg-type]
        seed=options.seed,
    )


def default_run_name(options: TuneOptions) -> str:
    """Return <checkpoint>-<data>; for a file called train, the name of its folder."""
    path = Path(strip_compression_suffix(find(options.data[0])[0]))
    data_name = path.parent.name if path.stem.lower() in ("train", "data") else path.stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{Path(options.checkpoint).name}-{data_name}").strip(
        "-."
    )


# The checkpoint


def resolve_checkpoint(checkpoint: str, folder: Path) -> tuple[Path, str]:
    """Return the model folder to start from, and its tokenizer. For an unfinished run, the newest checkpoint is exported next to the
    trials."""
    there = local_folder(checkpoint)
    if (there / "recipe.json").is_file():
        there = (
            there / "model"
            if (there / "model").is_dir()
            else export_unfinished_run(checkpoint, folder / "start")
        )
    if not find_file(there, "tokenizer.json"):
        raise ValueError(
            f"{there} holds no tokenizer.json; put the one that the model was trained with beside its weights"
        )
    return there.resolve(), str((there / "tokenizer.json").resolve())


def export_unfinished_run(checkpoint: str, start: Path) -> Path:
    if not (start / "tokenizer.json").exists():  # of the first time: the run may have gone on since
        model = open_model(checkpoint)
        claim(start.parent)
        save(model.model, start, to="weft", tokenizer=model.require_tokenizer.text)
    return start


def claim(folder: Path) -> None:
    """Mark the folder as ours, so that a search stopped before its first result finds it again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


# The data


def split_validation(detected: DetectedData, folder: Path, seed: int) -> DetectedData:
    """Hold out a tenth of the rows, or of SQuAD's articles; always the same ones."""
    data_folder = folder / "data"
    data_folder.mkdir(parents=True, exist_ok=True)
    if detected.train.format == "squad":
        parts: list[Any] = [
            article for path in detected.train.paths for article in iterate_articles(path)
        ]
        what, ending = "articles", "json"
    else:
        parts, what, ending = (
            [{name: row.get(name) for name in detected.row.columns} for row in detected.rows],
            "rows",
            "jsonl",
        )
    if len(parts) < 2:
        raise ValueError(
            f"{detected.train.paths[0]}: one {what[:-1]} cannot be split; give --valid"
        )
    count = max(1, round(VALIDATION_FRACTION * len(parts)))
    chosen = set(permute(np.arange(count), len(parts), seed).tolist())
    sides = {
        "train": [p for i, p in enumerate(parts) if i not in chosen],
        "valid": [p for i, p in enumerate(parts) if i in chosen],
    }
    for side, rows in sides.items():
        text = (
            json.dumps({"data": rows})
            if ending == "json"
            else "".join(json.dumps(row, default=str) + "\n" for row in rows)
        )
        write_if_changed(data_folder / f"{side}.{ending}", text.encode())
    train, valid = (
        R.Source(
            paths=(str(data_folder / f"{side}.{ending}"),),
            format="squad" if ending == "json" else "jsonl",
        )
        for side in sides
    )
    return detected._replace(
        train=train,
        valid=valid,
        summary=f"{detected.summary}; {count:,} of {len(parts):,} {what} held out",
    )


def row_length_quantile(store: Store, row: R.RowSchema, max_length: int) -> int:
    """Return the 99th percentile of the row lengths, for tags the maximum, rounded up to a multiple of 8."""
    if isinstance(row, R.TemplatedPairs):
        sides = [store.lengths(np.arange(len(store)), side) for side in ("source", "target")]
        return round_up_to_8(float(np.quantile(np.max(sides, axis=0) + 2, 0.99)), max_length)
    columns = row.length_columns
    lengths = (
        np.sum([store.lengths(np.arange(len(store)), column) for column in columns], axis=0)
        + len(columns)
        + 1
    )
    return round_up_to_8(
        float(lengths.max() if isinstance(row, R.TaggedWords) else np.quantile(lengths, 0.99)),
        max_length,
    )


def question_window_length(detected: DetectedData, tokenizer: Tokenizer, max_length: int) -> int:
    some = detected.rows[:: max(1, len(detected.rows) // 2000)]
    question_lengths = np.diff(
        tokenizer.encode_many([row["question"] for row in some])[1], prepend=0
    )
    read = np.diff(tokenizer.encode_many([row["context"] for row in some])[1], prepend=0)
    return round_up_to_8(float(np.quantile(question_lengths + read + 3, 0.99)), max_length)


def round_up_to_8(length: float, max_length: int) -> int:
    return min(max_length, max(16, 8 * -(-int(np.ceil(length)) // 8)))
