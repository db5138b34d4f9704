"""From a checkpoint and what the data hold to recipes: the head of the family's own fine-tuning class, lengths from the data, the
settings of BERT's authors (arXiv:1810.04805, appendix A.3)."""
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import recipe as R
from .. import spec as S
from ..data.files import bare, find, update
from ..data.members import member
from ..data.order import permute
from ..data.ownership import refuse_strange
from ..data.prepare import prepare
from ..data.quarantine import MAX_BAD_ROWS, columns
from ..data.squad import articles
from ..data.store import Store, open_store
from ..data.tokenizer import Tokenizer
from ..interop.describe import describe
from ..interop.folder import save
from ..interop.hub import fetch
from ..objectives.base import room
from ..ready import ready
from . import text2text
from .guess import Guess, guess
from .model import featured, headed, style_of

TABLE = "tune.json"
MARK = ".tune"                             # an empty file in a folder that a search made
RATES = (5e-5, 4e-5, 3e-5, 2e-5)
RELATIVE_RATES = (1e-2, 3e-3, 1e-3)        # of Adafactor, whose steps are relative to the weights: T5's authors fine-tune at 1e-3
SMALL, RESTARTS = 10_000, 3                # on fewer rows than this, several seeds
HELD_OUT = 0.1                             # of the rows, where no dev data are given
LONGEST, WINDOW, POOLS = 512, 384, 32      # tokens of a row, of a window of a context; batches that are sorted together


@dataclass(frozen=True)
class Wish:
    """What a person asked for; None: as the data and the checkpoint have it."""
    checkpoint: str
    data: tuple[str, ...]
    dev: tuple[str, ...] = ()
    out: str | None = None
    task: str | None = None
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    label: str | None = None
    prefix: str = ""                       # before every source text: T5's name of a task
    words: tuple[str, ...] = ()            # the text of each class, where a class is decoded as text
    metric: str | None = None
    rates: tuple[float, ...] = ()
    restarts: int | None = None
    epochs: float = 3
    batch: int = 32
    length: int | None = None
    looks: int = 2                         # at the dev data, an epoch
    dropout: float | None = None
    features: S.Layers | None = None       # which layers the head reads
    layers: float | None = None
    lm_weight: float = 0.0                 # of GPT's auxiliary next-token loss
    trained: R.HeadOnly | R.LoRA | None = None
    precision: str | None = None
    seed: int = 0
    max_bad_rows: float = MAX_BAD_ROWS


class Plan(NamedTuple):
    """All that is decided before the first step. A try is this recipe at another rate and seed."""
    folder: Path
    line: str
    task: str
    metric: str
    rates: tuple[float, ...]
    restarts: int
    recipe: R.Recipe
    train: int
    dev: int

    def at(self, rate: float, seed: int) -> R.Recipe:
        return replace(self.recipe, name=f"try-{rate:g}-{seed}", seed=seed, optimiser=replace(self.recipe.optimiser, rate=rate))


def plan(wish: Wish, say: Any = None, progress: Any = None) -> Plan:
    """`say` gets what was understood, before the work that takes time; `progress` what preparing says."""
    folder = Path(wish.out or Path("runs") / name_of(wish))
    refuse_strange(folder, MARK, TABLE, "recipe.json")
    if (folder / "recipe.json").exists() and not (folder / TABLE).exists():
        raise ValueError(f"{folder} is a run of its own, which this would overwrite; give another --out")
    start, tokenizer = origin(wish.checkpoint, folder)
    found = read(wish, describe(start)[1])
    for line in (found.line, *found.notes) if say else ():
        say(line)
    spec = featured(headed(describe(start)[1], start, found, wish), wish)
    objective = objective_of(wish, found, spec, start)
    claim(folder)
    found = found if found.dev is not None else split(found, folder, wish.seed)
    most = min(wish.length or LONGEST, room(spec) or LONGEST)
    row = found.row
    if isinstance(row, R.Questions):
        most = min(most, WINDOW) if wish.length is None else most
        row = R.Questions(length=most if wish.length else window(found, Tokenizer.load(tokenizer), most), stride=min(128, most // 2))
    data = R.Data(row=row, train=found.train, valid=found.dev, tokenizer=R.TokenizerFile(path=tokenizer), folder=str(folder / "prepared"),
                  max_bad_rows=wish.max_bad_rows)
    prepare(data, say=progress)
    store, dev = open_store(folder / "prepared", "train"), open_store(folder / "prepared", "valid")
    length = row.length if isinstance(row, R.Questions) else wish.length or quantile(store, row, most)
    metric = wish.metric or ("loss" if isinstance(row, R.Templated) and row.labels is None else R.METRICS[type(objective)][0])
    batch = R.Rows(count=wish.batch, length=length, pool=POOLS * wish.batch)
    recipe = recipe_of(wish, objective, spec, data, batch, len(store), str(start), metric)
    usual = RELATIVE_RATES if isinstance(recipe.optimiser, R.Adafactor) else tuple(rate * scale(wish.trained) for rate in RATES)
    rates = tuple(dict.fromkeys(wish.rates)) or usual
    restarts = wish.restarts or (RESTARTS if len(store) < SMALL else 1)
    return Plan(folder, found.line, found.task, metric, rates, restarts, recipe, len(store), len(dev))


def scale(trained: R.HeadOnly | R.LoRA | None) -> float:
    """Few new weights bear more than many trained ones: LoRA's table D.9 has 4e-4 and 5e-4; a linear head on features more."""
    return 100.0 if isinstance(trained, R.HeadOnly) else 10.0 if trained else 1.0


def read(wish: Wish, spec: S.Model) -> Guess:
    """What the data ask of this model. Two texts and a score are read in both orders by a decoder: GPT's similarity."""
    if (texts := text2text.read(wish, spec)) is not None:
        return texts
    similar = wish.task == "similarity"
    found = guess(wish.data, wish.dev, None if similar else wish.task, wish.names, wish.columns, wish.label, wish.max_bad_rows)
    pair = isinstance(found.row, R.Examples) and found.row.second is not None
    if similar and not pair:
        raise ValueError(f"{wish.data[0]}: --task similarity reads two texts and a label; name them: --columns TEXT TEXT LABEL")
    if similar or (pair and found.task == "regress" and wish.task is None and spec.encoder is None):
        kept = "" if similar else "; --task regress reads one order"
        return found._replace(task="similarity", line=f"{found.line.rpartition(': ')[0]}: similarity, read in both orders{kept}")
    return found


def objective_of(wish: Wish, found: Guess, spec: S.Model, start: Path) -> R.Objective:
    style: Any = "gpt" if spec.decoder is not None else "bert"
    if wish.lm_weight and (style == "bert" or found.task in ("tag", "answer", "text2text")
                           or describe(start)[1].head != S.Vocabulary(tied=True)):
        raise ValueError(f"--lm-weight {wish.lm_weight:g} is for texts, pairs and endings of a decoder whose language modelling head is "
                         "its token table, such as GPT-2; leave it out")
    match found.task:
        case "text2text":
            return R.TextToText(input=style_of(start, spec))
        case "tag":
            return R.Tagging()
        case "answer":
            return R.Answering()
        case "choose":
            return R.MultipleChoice(input=style, lm_weight=wish.lm_weight)
    kind: Any = R.Regression if getattr(found.row, "number", False) else R.Classification
    made: R.Objective = kind(input=style, symmetric=found.task == "similarity", lm_weight=wish.lm_weight)
    return made


def optimiser_of(wish: Wish, spec: S.Model) -> R.AdamW | R.Adafactor:
    """T5's weights differ in size by a factor of 50, the token table's are the largest: AdamW's steps, equally large for all, hardly move
    the table (docs/log.md). Its authors fine-tune with Adafactor, whose steps are relative (arXiv:1910.10683, section 3.1.2). Low-rank
    updates start at zero, and layer-wise rates need AdamW: both keep it."""
    if isinstance(spec.start, S.T5Start) and wish.trained is None and wish.layers is None:
        return R.Adafactor(rate=RELATIVE_RATES[0])
    return R.AdamW(rate=RATES[0], layers=wish.layers)


def recipe_of(wish: Wish, objective: R.Objective, spec: S.Model, data: R.Data, batch: R.Rows, rows: int, start: str,
              metric: str) -> R.Recipe:
    epoch = -(-rows // batch.count)
    steps = max(1, round(wish.epochs * epoch))
    look = max(1, epoch // wish.looks)
    return R.Recipe(
        name="try", model=spec, objective=objective, data=data, batch=batch, steps=steps, start=start,
        optimiser=optimiser_of(wish, spec), schedule=R.Linear(warmup=steps // 10), trained=wish.trained,
        average=R.Best(metric=metric), evaluate=look, save=R.Saves(keep=1),  # type: ignore[arg-type]
        precision=wish.precision or best_precision(), seed=wish.seed)  # type: ignore[arg-type]


def best_precision() -> str:
    """bf16 where the machine multiplies matrices of it fast."""
    return "bf16" if torch.cuda.is_available() or torch.cpu._is_amx_tile_supported() else "fp32"


def name_of(wish: Wish) -> str:
    """After the checkpoint and the data; files called train say nothing, their folder does."""
    path = Path(bare(find(wish.data[0])[0]))
    own = path.parent.name if path.stem.lower() in ("train", "data") else path.stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{Path(wish.checkpoint).name}-{own}").strip("-.")


# The checkpoint

def origin(checkpoint: str, folder: Path) -> tuple[Path, str]:
    """The model folder to start from, and its tokenizer. Of a run that is not finished, the newest checkpoint is put beside the tries."""
    there = fetch(checkpoint)
    if (there / "recipe.json").is_file():
        there = there / "model" if (there / "model").is_dir() else kept(checkpoint, folder / "start")
    if not member(there, "tokenizer.json"):
        raise ValueError(f"{there} holds no tokenizer.json; put the one that the model was trained with beside its weights")
    return there.resolve(), str((there / "tokenizer.json").resolve())


def kept(checkpoint: str, start: Path) -> Path:
    if not (start / "tokenizer.json").exists():            # of the first time: the run may have gone on since
        found = ready(checkpoint)
        claim(start.parent)
        save(found.model, start, to="weft", tokenizer=found.text.text)
    return start


def claim(folder: Path) -> None:
    """The folder is ours from now on; a search that is stopped before its table exists finds it so."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


# The data

def split(found: Guess, folder: Path, seed: int) -> Guess:
    """A tenth of the rows held out, of SQuAD a tenth of the articles; the same whenever it is asked."""
    made = folder / "data"
    made.mkdir(parents=True, exist_ok=True)
    if found.task == "answer":
        parts: list[Any] = [article for path in found.train.paths for article in articles(path)]
        what, ending = "articles", "json"
    else:
        parts, what, ending = [{name: row.get(name) for name in columns(found.row)} for row in found.rows], "rows", "jsonl"
    if len(parts) < 2:
        raise ValueError(f"{found.train.paths[0]}: one {what[:-1]} cannot be split; give --dev")
    count = max(1, round(HELD_OUT * len(parts)))
    chosen = set(permute(np.arange(count), len(parts), seed).tolist())
    sides = {"train": [p for i, p in enumerate(parts) if i not in chosen], "dev": [p for i, p in enumerate(parts) if i in chosen]}
    for side, own in sides.items():
        text = json.dumps({"data": own}) if ending == "json" else "".join(json.dumps(row, default=str) + "\n" for row in own)
        update(made / f"{side}.{ending}", text.encode())
    train, dev = (R.Source(paths=(str(made / f"{side}.{ending}"),), format="squad" if ending == "json" else "jsonl") for side in sides)
    return found._replace(train=train, dev=dev, line=f"{found.line}; {count:,} of {len(parts):,} {what} held out")


def quantile(store: Store, row: R.Row, most: int) -> int:
    """The length that 99 of 100 rows have at most, of tags all; a multiple of 8."""
    if isinstance(row, R.Templated):
        sides = [store.lengths(np.arange(len(store)), side) for side in ("source", "target")]
        return rounded(float(np.quantile(np.max(sides, axis=0) + 2, 0.99)), most)
    columns = {"Examples": ["first", *(["second"] if getattr(row, "second", None) else [])], "Choices": ["context", "endings"]}.get(
        type(row).__name__, ["tokens"])
    lengths = np.sum([store.lengths(np.arange(len(store)), column) for column in columns], axis=0) + len(columns) + 1
    return rounded(float(lengths.max() if isinstance(row, R.Tagged) else np.quantile(lengths, 0.99)), most)


def window(found: Guess, tokenizer: Tokenizer, most: int) -> int:
    some = found.rows[::max(1, len(found.rows) // 2000)]
    asked = np.diff(tokenizer.encode_many([row["question"] for row in some])[1], prepend=0)
    read = np.diff(tokenizer.encode_many([row["context"] for row in some])[1], prepend=0)
    return rounded(float(np.quantile(asked + read + 3, 0.99)), most)


def rounded(length: float, most: int) -> int:
    return min(most, max(16, 8 * -(-int(np.ceil(length)) // 8)))
