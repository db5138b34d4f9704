"""What a run is: a model, an objective, data, an optimiser and a plan, as one frozen value. Nothing here imports torch."""
import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from math import ceil
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Any, Literal

from pydantic import Field

from .overrides import change as change
from .spec import Count, Fraction, Model, Natural, Positive, Rate, Share
from .values import Damaged, from_plain, suggest, to_json, unseal, value
from .values import put as put

FIELD = re.compile(r"\{([^{}]+)\}")      # a column's name in a template


# Tokenizers. Where `special` is True, ids 0 to 4 are pad, unknown, begin, end and mask.


@value
class ByteBPE:
    """Merges over bytes: no text is unknown (Radford et al. 2019, section 2.2)."""
    vocabulary: Count
    special: bool = True
    sentinels: Natural = 0                 # T5's span marks, the last ids of the vocabulary


@value
class BPE:
    """Merges over characters, one vocabulary for all columns (Sennrich et al. 2016, arXiv:1508.07909)."""
    vocabulary: Count
    lowercase: bool | Literal["marked"] = False     # marked: what was a capital is known from a mark, and decoded as one
    sentinels: Natural = 0


@value
class WordPiece:
    """BERT's pieces, `##` inside a word (Devlin et al. 2018, arXiv:1810.04805)."""
    vocabulary: Count
    lowercase: bool = True
    sentinels: Natural = 0


@value
class Unigram:
    """The likeliest cut under a unigram model of pieces (Kudo 2018, arXiv:1804.10959)."""
    vocabulary: Count
    sentinels: Natural = 0


@value
class Bytes:
    """Each byte is a token (ByT5, arXiv:2105.13626)."""
    special: bool = True
    sentinels: Natural = 0


@value
class Characters:
    """Each character that the training text holds is a token."""
    special: bool = True


@value
class TokenizerFile:
    """A `tokenizer.json` that exists already."""
    path: str


Tokenizer = ByteBPE | BPE | WordPiece | Unigram | Bytes | Characters | TokenizerFile


# What a row of the data is

@value
class Documents:
    """Running text. Each document ends with the end token; `sentences` also keeps where each sentence starts."""
    text: str = "text"
    sentences: bool = False


@value
class Pairs:
    """A source and its target, as in translation."""
    source: str = "source"
    target: str = "target"


@value
class Templated:
    """A source text written from columns by a template, and its target text: T5's text-to-text format (arXiv:1910.10683, section 2.4)."""
    template: str = "{source}"             # columns in braces: "mrpc sentence1: {sentence1} sentence2: {sentence2}"
    target: str = "target"
    labels: tuple[str, ...] | None = None  # the target column holds one of these classes; None: any text
    words: tuple[str, ...] | None = None   # the text decoded for each class; None: its name

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError(f"template = {self.template!r} names no column; put one in braces, such as {{text}}")
        if self.words is not None and len(self.words) != len(self.labels or ()):
            raise ValueError(f"words = {self.words}: give one per class, {len(self.labels or ())}")
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"words = {self.words}: two classes with the same text cannot be told apart")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the template names, each once."""
        return tuple(dict.fromkeys(FIELD.findall(self.template)))

    @property
    def targets(self) -> tuple[str, ...]:
        """The text of each class."""
        return self.words or self.labels or ()

    def source_text(self, fields: dict[str, Any]) -> str:
        return FIELD.sub(lambda found: str(fields[found[1]]), self.template)

    def target_text(self, fields: dict[str, Any]) -> str:
        cell = str(fields[self.target])
        return cell if self.labels is None else self.targets[self.labels.index(cell)]


@value
class Examples:
    """One or two texts and a label: a class, or a number where `number` is True."""
    first: str = "text"
    second: str | None = None
    label: str = "label"
    number: bool = False
    labels: tuple[str, ...] | None = None  # the classes in order; None: as sorted in the training data


@value
class Choices:
    """A context, several endings, and the number of the right one."""
    context: str = "context"
    endings: tuple[str, ...] = ("ending0", "ending1", "ending2", "ending3")
    label: str = "label"


@value
class Tagged:
    """Words with a tag each; a word's first piece carries it."""
    words: str = "words"
    tags: str = "tags"
    labels: tuple[str, ...] | None = None


@value
class Questions:
    """A question and a context that may hold its answer; long contexts are read in windows `stride` tokens apart (BERT, section 4.2)."""
    length: Count = 384                    # question, context and marks together
    stride: Count = 128
    question: Count = 64                   # at most


@value
class Images:
    """An image and its class."""
    labels: tuple[str, ...] | None = None


@value
class Boxed:
    """An image and the boxes in it, COCO's way."""
    labels: tuple[str, ...] | None = None


Row = Documents | Pairs | Templated | Examples | Choices | Tagged | Questions | Images | Boxed


@value
class Source:
    """Files to read: local or any fsspec address, globs allowed, `.gz` and `.zst` opened on the way.

    A relative path is looked up here, then under $WEFT_DATA. `names` are the columns where the files do not name them."""
    paths: tuple[str, ...]
    format: Literal["text", "parallel", "jsonl", "json", "csv", "tsv", "parquet", "hub", "conll", "squad", "folder", "coco"] | None = None
    document: Literal["file", "line", "blank", "heading"] = "blank"   # where a document of plain text ends
    names: tuple[str, ...] = ()
    header: bool = True                    # csv and tsv: the first line names the columns
    delimiter: Literal[",", ";", "|", "\t"] | None = None               # of a csv; None: told from its first lines
    part: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] = (0.0, 1.0)   # only this stretch of each file


@value
class Data:
    """Where samples come from. The tokenizer is trained on `train`; everything is prepared once, into `folder`. Rows that cannot be read
    are set aside; where they are more than `max_bad_rows`, a share of all rows, preparing stops (see `data.quarantine.allowed`)."""
    row: Documents | Pairs | Templated | Examples | Choices | Tagged | Questions | Images | Boxed
    train: Source
    valid: Source | None = None
    tokenizer: ByteBPE | BPE | WordPiece | Unigram | Bytes | Characters | TokenizerFile | None = None
    folder: str | None = None              # None: prepared/<fingerprint of all this>
    max_bad_rows: Annotated[float, Field(ge=0, le=1)] = 0.001


# Batches: what one step reads, over all ranks and micro-batches

@value
class Rows:
    """`count` samples a step; running text is cut into windows of `length` tokens."""
    count: Count
    length: Count
    pool: Count | None = None              # samples that are sorted together, so that those of a step are about as long; None: in any order


@value
class Packed:
    """About `count` rows of `length` tokens a step, each filled with several short samples that do not see each other."""
    count: Count
    length: Count
    pool: Count = 2048                     # samples that are packed together


@value
class Budget:
    """Samples of like length together, about `tokens` a step, padding included (Vaswani et al. 2017, section 5.1)."""
    tokens: Count
    length: Count                          # longer samples are cut
    pool: Count = 4096                     # samples that are sorted together


Batching = Rows | Packed | Budget


# Objectives

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@value
class NextToken:
    """Predict each next token (Radford et al. 2018)."""
    apart: bool = False                    # a window's documents do not see each other
    documents: bool = False                # a sample is a document, cut at the length, not a window: for Packed and Budget


@value
class MaskedTokens:
    """Guess hidden tokens (BERT, arXiv:1810.04805, section 3.1), in one of four inputs (RoBERTa, arXiv:1907.11692, section 4.2)."""
    share: Share = 0.15
    masked: Fraction = 0.8                 # of the chosen
    random: Fraction = 0.1                 # of the chosen; the rest is kept (BERT, appendix C.2, compares six such rows)
    choose: Literal["tokens", "words", "spans"] = "tokens"   # spans: SpanBERT, arXiv:1907.10529
    fixed: bool = False                    # the same mask in every epoch: BERT's static masking
    input: Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"] = "full-sentences"
    next_sentence: bool = False            # NSP, for the two pair inputs


@value
class ReplacedTokens:
    """Tell original from replaced tokens, which a small generator proposes (ELECTRA, arXiv:2003.10555)."""
    generator: Model
    share: Share = 0.15
    weight: Positive = 50.0


@value
class CorruptedSpans:
    """Decode the spans that sentinels replaced (T5, arXiv:1910.10683, section 3.3.4)."""
    share: Share = 0.15
    mean: Positive = 3.0


@value
class Denoising:
    """Rebuild the text from an infilled, sentence-shuffled one (BART, arXiv:1910.13461, section 2.2)."""
    share: Rate = 0.3
    mean: Positive = 3.0                   # of the Poisson span lengths
    shuffle: bool = True


@value
class Translation:
    """Decode the target, labels smoothed (Vaswani et al. 2017, section 5.4)."""
    smoothing: Rate = 0.1
    dropout: Rate = 0.0                    # of BPE's merges, drawn anew for each sample (BPE-dropout, arXiv:1910.13267)


@value
class TextToText:
    """Decode the target text of a source text with the whole encoder-decoder (T5, arXiv:1910.10683, section 2.1; BART, arXiv:1910.13461,
    section 3.4). `input`: T5's A </s>, the decoder starts from the padding token; or BART's <s> A </s>, it starts from </s>."""
    input: Literal["t5", "bart"] = "t5"
    smoothing: Rate = 0.0


@value
class Classification:
    """The class of a text, a pair or an image. `input`: BERT's [CLS] A [SEP] B [SEP], or GPT's start A delimiter B extract."""
    input: Literal["bert", "gpt"] = "bert"
    symmetric: bool = False                # GPT's similarity: both orders, added
    smoothing: Rate = 0.0
    lm_weight: Weight = 0.0                # of GPT's auxiliary next-token loss, for decoders (its paper: 0.5)


@value
class Regression:
    """A number for a text or a pair, by squared error."""
    input: Literal["bert", "gpt"] = "bert"
    symmetric: bool = False
    lm_weight: Weight = 0.0


@value
class MultipleChoice:
    """One score an ending, softmax over the endings."""
    input: Literal["bert", "gpt"] = "bert"
    lm_weight: Weight = 0.0


@value
class Tagging:
    """A tag for the first piece of every word (BERT, section 5.3)."""


@value
class Answering:
    """Where an answer starts and ends; no answer points at the first token (BERT, section 4.3)."""


@value
class Autoencoding:
    """Rebuild the hidden patches of an image (MAE, arXiv:2111.06377)."""
    share: Rate = 0.75
    normalised: bool = True                # each patch's pixels by their own mean and deviation


@value
class Distillation:
    """Learn from a teacher: softened scores (arXiv:1503.02531), or its choice on the distillation token (DeiT, arXiv:2012.12877)."""
    teacher: str                           # a model folder
    hard: bool = False
    temperature: Positive = 3.0
    weight: Share = 0.5


Objective = (NextToken | MaskedTokens | ReplacedTokens | CorruptedSpans | Denoising | Translation | TextToText | Classification
             | Regression | MultipleChoice | Tagging | Answering | Autoencoding | Distillation)


# Optimisers: `rate` is the peak that the schedule scales

Betas = tuple[Rate, Rate]


@value
class AdamW:
    """Decay apart from the gradient (Loshchilov and Hutter 2017, arXiv:1711.05101); norms and biases do not decay."""
    rate: Positive
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    decay: Rate = 0.01
    layers: Share | None = None            # each block learns at this share of the next one's rate (arXiv:1801.06146, section 3.2)


@value
class Adam:
    """With the betas of the 2017 Transformer, section 5.3."""
    rate: Positive
    betas: Betas = (0.9, 0.98)
    eps: Positive = 1e-9


@value
class Adafactor:
    """Factored second moments (Shazeer and Stern 2018, arXiv:1804.04235)."""
    rate: Positive
    decay: Rate = 0.0


@value
class SGD:
    rate: Positive
    momentum: Rate = 0.9
    decay: Rate = 0.0


@value
class Muon:
    """Orthogonalised momentum for the blocks' matrices (Jordan et al. 2024), at AdamW's scale (Liu et al. 2025, arXiv:2502.16982);
    AdamW at `other` for all else. Each step has the same size, also where the gradient is noise: a model that will be fine-tuned needs a
    rate near AdamW's, or its matrices outgrow their start (docs/log.md)."""
    rate: Positive
    other: AdamW
    momentum: Rate = 0.95
    decay: Rate = 0.0

    def __post_init__(self) -> None:
        if self.other.layers is not None:
            raise ValueError(f"Muon.other.layers = {self.other.layers}: Muon has one rate for all blocks; take AdamW alone")


# Schedules: the share of the peak rate at a step, counted from 1

@value
class Constant:
    warmup: Natural = 0


@value
class Linear:
    """Up in `warmup` steps, then straight down to `end` at the last step (BERT)."""
    warmup: Natural = 0
    end: Rate = 0.0


@value
class Cosine:
    warmup: Natural = 0
    end: Rate = 0.0


@value
class InverseRoot:
    """Up in `warmup` steps, then with the root of the step (Vaswani et al. 2017, section 5.3)."""
    warmup: Count = 4000


@value
class WarmupStableDecay:
    """Up, level, and down over the last `decay` of the steps (Hu et al. 2024, arXiv:2404.06395)."""
    warmup: Natural = 0
    decay: Share = 0.2
    end: Rate = 0.0


Schedule = Constant | Linear | Cosine | InverseRoot | WarmupStableDecay


def rate_2017(width: int, warmup: int) -> float:
    """The peak of width ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)."""
    return float((width * warmup) ** -0.5)


# What is trained, where not everything is

@value
class HeadOnly:
    """A new head on features that stay as they are (BERT, arXiv:1810.04805, section 5.3)."""


@value
class LoRA:
    """W + alpha / rank · B A for maps of the attentions: A, B and the head are trained, and the exported model has B A in its W
    (Hu et al. 2021, arXiv:2106.09685, section 4)."""
    rank: Count = 8
    alpha: Positive = 16.0
    maps: Annotated[tuple[Literal["query", "key", "value", "out"], ...], Field(min_length=1)] = ("query", "value")


# Which weights are kept at the end, where not the last

@value
class Moving:
    """average <- decay * average + (1 - decay) * weights (Polyak)."""
    decay: Rate = 0.9999


@value
class Last:
    """The mean of the last `count` checkpoints (Vaswani et al. 2017, section 6.1)."""
    count: Count = 5


@value
class Best:
    """Those that did best on the validation data, of all times that they were looked at; of two as good, the earlier."""
    metric: Literal["loss", "accuracy", "f1", "matthews", "pearson", "spearman", "exact"] = "loss"


# The task's own measures beside the loss; more is better
METRICS: dict[type, tuple[str, ...]] = {
    Classification: ("accuracy", "f1", "matthews"), Regression: ("pearson", "spearman"), MultipleChoice: ("accuracy",),
    Tagging: ("f1", "accuracy"), Answering: ("f1", "exact"), TextToText: ("exact",)}


def metric(recipe: "Recipe") -> str | None:
    """The task's own measure that a run is judged by, beside the loss."""
    chosen = recipe.average.metric if isinstance(recipe.average, Best) else "loss"
    return chosen if chosen != "loss" else next(iter(METRICS.get(type(recipe.objective), ())), None)


def scores(recipe: "Recipe", found: dict[str, float]) -> dict[str, float]:
    """Of what validation found, the loss and the task's own measure."""
    return {name: found[name] for name in ("loss", metric(recipe)) if name is not None and name in found}


# The run

@value
class Guard:
    """A step whose loss or gradient is not finite, or whose loss is `spike` deviations above the last `window`, is not taken;
    more than `budget` such steps stop the run."""
    budget: Natural = 3
    spike: Positive | None = None
    window: Count = 64


@value
class Timeouts:
    """Seconds until a rank gives up: on a collective operation, and on another rank whose heartbeat is missing."""
    collective: Positive = 60.0
    heartbeat: Positive = 10.0


@value
class Saves:
    """A checkpoint each `every` steps and at the end; the newest `keep` stay."""
    every: Count = 500
    keep: Count = 2


@value
class Recipe:
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    model: Model
    objective: (NextToken | MaskedTokens | ReplacedTokens | CorruptedSpans | Denoising | Translation | TextToText | Classification
                | Regression | MultipleChoice | Tagging | Answering | Autoencoding | Distillation)
    data: Data
    batch: Rows | Packed | Budget
    steps: Count
    optimiser: AdamW | Adam | Adafactor | SGD | Muon
    schedule: Constant | Linear | Cosine | InverseRoot | WarmupStableDecay = Linear()
    lengths: tuple[tuple[Share, Count], ...] = ()   # (0.9, 128), (1.0, 512): until this share of the steps, this length
    clip: Positive | None = 1.0            # the gradient's norm
    trained: HeadOnly | LoRA | None = None          # None: everything
    average: Moving | Last | Best | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    micro: Count | None = None             # rows in one forward pass on one rank; None: all
    recompute: bool = False
    compile: bool = False
    guard: Guard = Guard()
    timeouts: Timeouts = Timeouts()
    save: Saves = Saves()
    evaluate: Count | None = None          # steps between two looks at the validation data; None: at the end only
    workers: Natural = 0                   # processes that make batches
    threads: Count | None = None           # CPU threads of one process, on which the last bits depend; None: PyTorch's choice
    deterministic: bool = False            # only algorithms of PyTorch that give the same bits each time, on CUDA too; some are slower
    seed: Natural = 0
    start: str | None = None               # a model folder to start from: its trunk, and its head where it fits
    paper: str = ""

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.lengths]
        if shares and (sorted(set(shares)) != shares or shares[-1] != 1):
            raise ValueError(f"lengths = {self.lengths}: shares of the steps must grow and end at 1")
        if self.lengths and isinstance(self.batch, Budget):
            raise ValueError("lengths are for batches of rows; a Budget has no fixed length")
        alone = Classification | Regression | MultipleChoice | Answering | Autoencoding | Distillation
        if isinstance(self.batch, Packed) and isinstance(self.objective, alone):
            raise ValueError(f"{type(self.objective).__name__} answers once a row, so no two samples may share one; take Rows or Budget, "
                             "not Packed")
        if isinstance(self.average, Best):
            known = ("loss", *METRICS.get(type(self.objective), ()))
            if self.data.valid is None:
                raise ValueError("average = Best(…) chooses by the validation data; give data.valid")
            if self.average.metric not in known:
                raise ValueError(f"Best.metric = {self.average.metric!r}: {type(self.objective).__name__} has {', '.join(known)}")

    def length(self, step: int) -> int:
        """The length of rows at a step, counted from 0."""
        for share, length in self.lengths:
            if step < ceil(share * self.steps):
                return length
        return self.batch.length

    def json(self) -> str:
        return to_json(self)


# Recipes in files

def read(name: str) -> Recipe:
    """The recipe of `file.py` (its first), `file.py:name`, a JSON file, or a run's folder."""
    file, _, wanted = name.partition(":")
    path = Path(file) / "recipe.json" if Path(file).is_dir() else Path(file)
    if not path.exists():
        raise ValueError(f"no recipe {file!r}: give a Python file, a JSON file or a run's folder")
    if path.suffix == ".json":
        found = {"recipe": of_json(path)}
    else:
        made = spec_from_file_location(path.stem, path)
        if made is None or made.loader is None:
            raise ValueError(f"{file} is no Python file; a recipe ends in .py or .json")
        module = module_from_spec(made)
        try:
            made.loader.exec_module(module)
        except Exception as error:         # a recipe is the user's own program
            inside = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == made.origin]
            line = error.lineno if isinstance(error, SyntaxError) else inside[-1] if inside else "?"
            raise ValueError(f"{file}, line {line}: {type(error).__name__}: {error}") from error
        found = {key: thing for key, thing in vars(module).items() if isinstance(thing, Recipe)}
    if not all(isinstance(thing, Recipe) for thing in found.values()) or not found:
        raise ValueError(f"{file} holds no Recipe")
    if wanted and wanted not in found:
        raise ValueError(f"{file} has no recipe {wanted!r}; {suggest(wanted, list(found))}")
    return found[wanted or next(iter(found))]


def of_run(folder: Path) -> Recipe:
    path = folder / "recipe.json"
    if not path.exists():
        raise ValueError(f"{folder} is not a run: it has no recipe.json; weft train makes one")
    return of_json(path)


def of_json(path: Path, sealed: bool = True) -> Recipe:
    """The recipe of a JSON file. One that holds its own SHA-256, as that of a run does, must match it, unless `sealed` is False."""
    try:
        text = path.read_text("utf-8")
        plain = json.loads(text)
        if isinstance(plain, dict) and "seal" in plain:
            plain = unseal(text) if sealed else {name: part for name, part in plain.items() if name != "seal"}
        found = from_plain(plain)
    except Damaged as error:
        raise Damaged(f'{path} was changed after it was written: {error}; if you edited it, delete its last field, "seal"') from None
    except ValueError as error:
        raise ValueError(f"{path} is no recipe: {error}") from None
    if not isinstance(found, Recipe):
        raise ValueError(f"{path} holds a {type(found).__name__}, not a Recipe")
    return found
