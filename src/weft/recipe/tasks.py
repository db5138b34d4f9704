"""Tasks: what a model is trained for, one value each, with everything that needs no torch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from ..spec import (
    ClassifierHead,
    DetectionHead,
    Fraction,
    HeadTransform,
    LMHead,
    PixelDecoder,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Probability,
    SpanHead,
    Spec,
    TokenClassifierHead,
    Tokens,
)
from ..support.registry import choice, implements, members, resolve
from ..support.synonyms import suggest
from .data.image_rows import ImagesWithBoxes, LabelledImages
from .data.rows import (
    ChoiceQuestions,
    ContextQuestions,
    Documents,
    LabelledTexts,
    RowSchema,
    SourceTargetPairs,
    TaggedWords,
    TemplatedPairs,
)
from .transforms import (
    CenterCrop,
    RandomCrop,
    RandomResizedCrop,
    RandomSizeCrop,
    Transform,
    check_transforms,
    transforms_for,
)

__all__ = [
    "CausalLM",
    "Classification",
    "Denoising",
    "DenoisingQueries",
    "Detection",
    "Distillation",
    "LossWeight",
    "MaskedAutoencoding",
    "MaskedLM",
    "MultipleChoice",
    "PairTask",
    "QuestionAnswering",
    "Regression",
    "ReplacedTokenDetection",
    "SpanCorruption",
    "TableFacts",
    "Task",
    "TextToText",
    "TokenClassification",
    "Translation",
    "best_match",
    "task_named",
    "task_names",
    "tunable_names",
    "verb_for",
]

LossWeight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
INFER = "weft.data.reading.columns:infer_row_schema"  # imported when a table is read


class TableFacts(NamedTuple):
    """What a file of examples looks like, for the detection in `weft tune`."""

    format: str  # such as "csv" or "squad"
    lists: int  # columns whose cells are lists
    endings: int  # columns that look like endings to choose between
    columns: tuple[str, ...] = ()


class Task:
    """Base of every task.

    Class attributes and methods say what the task fits and how it is judged; the fields of a member
    say how it is done. What preprocesses, scores, predicts and evaluates is registered with
    `implements`: one file per task.
    """

    name: ClassVar[str] = ""  # on the command line; "": it is not offered there
    variants: ClassVar[tuple[str, ...]] = ()  # further names of `weft tune`, for certain rows
    row_schemas: ClassVar[tuple[type, ...]] = (Documents,)  # that it reads, the usual one first
    file_format: ClassVar[str | None] = None  # of its examples, where no other can hold them
    head: ClassVar[type] = LMHead  # that the model needs
    hf_class_suffix: ClassVar[str] = (
        ""  # of the Hugging Face class, such as "ForTokenClassification"
    )
    verb: ClassVar[str | None] = None  # of the command that does it, such as "tag"
    metrics: ClassVar[tuple[str, ...]] = ()  # of validation beside the loss; the first one selects
    loss_unit: ClassVar[str] = "nats"
    packable: ClassVar[bool] = True  # may several samples share a row?
    numeric_task: ClassVar[str | None] = (
        None  # name of the task for the same rows with numbers as labels
    )
    keeps_decoder: ClassVar[bool] = (
        False  # tuned with the whole encoder-decoder and its head, not with its encoder alone
    )
    metric_packages: ClassVar[
        dict[str, str]
    ] = {}  # that its metrics import, and the extra that installs each
    model_folders: ClassVar[
        tuple[str, ...]
    ] = ()  # fields that name a model's folder, read before training

    @classmethod
    def for_model(cls, spec: Spec, **options: Any) -> "Task":
        """Return the task as it suits a model that no recipe describes."""
        return cls(**options)

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        """Return how much a table looks like this task's examples; 0: `weft tune` does not offer
        the task.
        """
        return 0.0

    def validation_metrics(self, rows: RowSchema) -> tuple[str, ...]:
        """Return the metrics of validation on such rows beside the loss; the first one selects."""
        return self.metrics

    def select_by(self, rows: RowSchema) -> str:
        """Return the metric that chooses the best checkpoint."""
        return next(iter(self.validation_metrics(rows)), "loss")

    @classmethod
    def default_rows(cls) -> RowSchema:
        """Return the rows that a file holds, where nothing says otherwise."""
        rows: RowSchema = cls.row_schemas[0]()
        return rows

    @classmethod
    def infer_rows(
        cls,
        rows: Sequence[dict[str, Any]],
        columns: Sequence[str] = (),
        label: str | None = None,
        name: str = "",
        row: RowSchema | None = None,
    ) -> RowSchema:
        """Return which columns of a table this task reads: by their names, then by what they hold.

        Args:
            rows: of the table.
            columns: those to read, in the order of the row schema, the label last unless it is
                named.
            label: the column of the label.
            name: one of the task's names on the command line.
            row: what a row is, with the usual names of its columns (default: `default_rows`).
        """
        row = row or cls.default_rows()
        schema: RowSchema = resolve(INFER)(row, rows, columns, label, **cls.infer_options(name))
        return schema

    @classmethod
    def infer_options(cls, name: str) -> dict[str, Any]:
        """Return what a name of the task says of its rows: `numeric`, whether labels are numbers
        (None: unknown), and `pair`, whether there are two texts.
        """
        return {}

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        """Return a new head for a model whose family has none for this task."""
        return spec.head

    def for_inference(self, rows: RowSchema) -> "Task":
        """Return what the trained model does: what only training needs is left out."""
        return self

    def extra_models(self) -> tuple[Spec, ...]:
        """Return the specs of what is trained beside the model and thrown away afterwards."""
        return ()

    def sequences_per_row(self) -> int:
        """Return how many sequences the model reads for a row of the data."""
        return 1

    def reference_models(self) -> int:
        """Return how many frozen models of the same size only read forward."""
        return 0

    def source_frame(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the special tokens before and after a text that is read; None: as the tokenizer's
        file says.
        """
        return None

    def decoder_start(self) -> str:
        """Return the special token that a decoder beside an encoder reads first, where the model
        names none.
        """
        return "bos"

    def visible_fraction(self) -> float:
        """Return the fraction of the input that the model's blocks see."""
        return 1.0

    def scored_fraction(self) -> float:
        """Return the fraction of the tokens whose logits are computed."""
        return 1.0

    def decoder_ratio(self) -> float:
        """Return the number of tokens that a decoder reads per token that its encoder reads."""
        return 1.0

    def base_rate(self) -> float | None:
        """Return the expected share of positive labels before training, whose log-odds are the
        output bias of a binary head at the start; None: the bias starts at 0.
        """
        return None


def task_names() -> list[str]:
    """Return every task's name on the command line."""
    return [task.name for task in members(Task) if task.name]


def task_named(name: str) -> type[Task]:
    """Return the task of a name on the command line.

    Raises:
        ValueError: if there is none; the message says which name is nearest.
    """
    for task in members(Task):
        if name in (task.name, *task.variants):
            return task
    raise ValueError(f"--task {name}: {suggest(name, task_names())}")


def verb_for(spec: Spec) -> str | None:
    """Return the verb of the first task that needs such a head and reads what the model reads; None
    if there is none.
    """
    reads_images = not isinstance(spec.source, Tokens)
    for task in members(Task):
        fits = any(bool(rows().image_columns) == reads_images for rows in task.row_schemas)
        if task.verb and fits and isinstance(spec.head, task.head):
            return task.verb
    return None


def tunable_names() -> list[str]:
    """Return the names that `weft tune --task` takes."""
    nothing = TableFacts("", 0, 0)
    tunable = [task for task in members(Task) if task.matches(nothing)]
    return [name for task in tunable for name in (task.name, *task.variants)]


def best_match(table: TableFacts) -> type[Task]:
    """Return the task whose examples a file looks most like."""
    return max(members(Task), key=lambda task: task.matches(table))


# Language modelling


@choice
class CausalLM(Task):
    """Predict each next token (Radford et al. 2018)."""

    name = "perplexity"
    hf_class_suffix = "ForCausalLM"
    verb = "generate"

    isolate_documents: bool = False  # tokens attend only within their own document
    one_document_per_sample: bool = (
        False  # a sample is a truncated document, not a window: for PackedBatch and TokenBudget
    )


implements(CausalLM, "weft.tasks.causal_lm:CausalLMTask")


@choice
class MaskedLM(Task):
    """Predict masked tokens (BERT, arXiv:1810.04805, section 3.1), in one of four input formats
    (RoBERTa, arXiv:1907.11692, section
    4.2)."""

    name = "fill"
    hf_class_suffix = "ForMaskedLM"
    verb = "fill"

    mask_rate: PositiveFraction = 0.15
    mask_token_rate: Fraction = 0.8  # of the chosen tokens
    random_token_rate: Fraction = (
        0.1  # of the chosen tokens; the rest stay (BERT, appendix C.2, compares six such rows)
    )
    masking_unit: Literal["tokens", "words", "spans"] = (
        "tokens"  # spans: SpanBERT, arXiv:1907.10529
    )
    static_mask: bool = False  # the same mask in every epoch: BERT's static masking
    input_format: Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"] = (
        "full-sentences"
    )
    next_sentence: bool = False  # NSP, for the two pair inputs

    @classmethod
    def default_rows(cls) -> RowSchema:
        return Documents(sentence_boundaries=True)

    def for_inference(self, rows: RowSchema) -> Task:
        """Return the task without next-sentence prediction, whose head is discarded after training."""
        return replace(self, next_sentence=False)

    def scored_fraction(self) -> float:
        return self.mask_rate


implements(MaskedLM, "weft.tasks.masked_lm:MaskedLMTask")


@choice
class ReplacedTokenDetection(Task):
    """Classify each token as original or replaced by a small generator (ELECTRA, arXiv:2003.10555)."""

    head = TokenClassifierHead
    hf_class_suffix = "ForPreTraining"

    generator: Spec
    mask_rate: PositiveFraction = 0.15
    discriminator_weight: PositiveFloat = 50.0

    def extra_models(self) -> tuple[Spec, ...]:
        return (self.generator,)

    def scored_fraction(self) -> float:
        return self.mask_rate

    def base_rate(self) -> float | None:
        """Return the share of replaced tokens: a generator at its start hardly ever draws the
        original.
        """
        # below 1, so that its log-odds are finite
        return min(self.mask_rate, 0.99)


implements(ReplacedTokenDetection, "weft.tasks.replaced_token_detection:ReplacedTokenDetectionTask")


@choice
class SpanCorruption(Task):
    """Decode the spans that sentinels replaced (T5, arXiv:1910.10683, section 3.3.4)."""

    hf_class_suffix = "ForConditionalGeneration"

    mask_rate: PositiveFraction = 0.15
    mean_span_length: PositiveFloat = 3.0

    def decoder_start(self) -> str:
        return "pad"

    def decoder_ratio(self) -> float:
        return self.mask_rate


implements(SpanCorruption, "weft.tasks.span_corruption:SpanCorruptionTask")


@choice
class Denoising(Task):
    """Reconstruct a text whose spans are infilled and whose sentences are shuffled (BART,
    arXiv:1910.13461, section 2.2).
    """

    hf_class_suffix = "ForConditionalGeneration"

    mask_rate: Probability = 0.3
    mean_span_length: PositiveFloat = 3.0  # of the Poisson span lengths
    shuffle_sentences: bool = True

    def source_frame(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("bos",), ("eos",)

    def decoder_start(self) -> str:
        return "eos"


implements(Denoising, "weft.tasks.denoising:DenoisingTask")


# Text to text


@choice
class Translation(Task):
    """Decode the target of a source, with label smoothing (Vaswani et al. 2017, section 5.4)."""

    name = "translate"
    row_schemas = (SourceTargetPairs,)
    hf_class_suffix = "ForConditionalGeneration"
    verb = "translate"

    label_smoothing: Probability = 0.1
    bpe_dropout: Probability = (
        0.0  # probability of leaving out a merge of BPE (BPE-dropout, arXiv:1910.13267)
    )


implements(Translation, "weft.tasks.translation:TranslationTask")


@choice
class TextToText(Task):
    """Decode the target text of a source text with the whole encoder-decoder (T5, arXiv:1910.10683,
    section 2.1; BART, arXiv:1910.13461, section 3.4). `input_format`: T5's A </s>, where the
    decoder starts with the padding token, or BART's <s> A </s>, where it starts with </s>.
    """

    name = "text2text"
    row_schemas = (SourceTargetPairs, TemplatedPairs)
    hf_class_suffix = "ForConditionalGeneration"
    verb = "translate"
    metrics = ("exact_match",)
    keeps_decoder = True

    input_format: Literal["t5", "bart"] = "t5"
    label_smoothing: Probability = 0.0

    def source_frame(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("bos",) if self.input_format == "bart" else (), ("eos",)

    def decoder_start(self) -> str:
        return "eos" if self.input_format == "bart" else "pad"

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 0.1  # only for an encoder-decoder, or with --task

    def select_by(self, rows: RowSchema) -> str:
        """Select by the loss, since generated free text seldom equals its reference."""
        return "loss" if getattr(rows, "labels", None) is None else "exact_match"


# Classes and numbers


def pair_style(spec: Spec) -> Literal["bert", "gpt"]:
    """Return how one or two texts are joined, where no recipe says it."""
    return "gpt" if spec.decoder is not None else "bert"


class PairTask(Task):
    """A task whose model reads one or two texts between special tokens, in the format of BERT or
    GPT.
    """

    head = ClassifierHead
    packable = False
    verb: ClassVar[str | None] = "classify"

    @classmethod
    def for_model(cls, spec: Spec, **options: Any) -> Task:
        return cls(**{"input_format": pair_style(spec), **options})

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        outputs = len(labels or ()) or 1
        if spec.decoder is not None:
            return ClassifierHead(
                num_labels=outputs, labels=labels, dropout=dropout, pooling="last"
            )
        transform = HeadTransform(activation="tanh")
        return ClassifierHead(
            num_labels=outputs, labels=labels, dropout=dropout, transform=transform
        )

    def for_inference(self, rows: RowSchema) -> Task:
        """Return the task without the auxiliary next-token loss, which no prediction needs."""
        plain_task: Task = replace(self, lm_weight=0.0)  # type: ignore[type-var]
        return plain_task


implements(TextToText, "weft.tasks.text_to_text:TextToTextTask")


@choice
class Classification(PairTask):
    """Predict the class of a text, a pair or an image. `input_format`: BERT's [CLS] A [SEP] B
    [SEP], or GPT's start A delimiter B extract.
    """

    name = "classify"
    variants = ("pair", "similarity")
    row_schemas = (LabelledTexts, LabelledImages)
    hf_class_suffix = "ForSequenceClassification"
    metrics = ("accuracy", "f1", "matthews")
    numeric_task = "regress"

    input_format: Literal["bert", "gpt"] = "bert"
    both_orders: bool = False  # GPT's similarity: both orders, added
    label_smoothing: Probability = 0.0
    lm_weight: LossWeight = 0.0  # of GPT's auxiliary next-token loss, for decoders (its paper: 0.5)
    transforms: tuple[Transform, ...] | None = (
        None  # of images in training; None: a random resized crop, mirrored half of the time
    )
    eval_transforms: tuple[Transform, ...] | None = None  # elsewhere; None: as `transforms` say

    def __post_init__(self) -> None:
        check_transforms(self.transforms, self.eval_transforms)

    @classmethod
    def infer_options(cls, name: str) -> dict[str, Any]:
        return {"numeric": False if name in (cls.name, "pair") else None, "pair": name == "pair"}

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 1.0


implements(Classification, "weft.tasks.classification:ClassificationTask")


@choice
class Regression(PairTask):
    """Predict a number for a text or a pair, with the squared error."""

    name = "regress"
    row_schemas = (LabelledTexts,)
    hf_class_suffix = "ForSequenceClassification"
    metrics = ("pearson", "spearman")
    loss_unit = "squared error"

    input_format: Literal["bert", "gpt"] = "bert"
    both_orders: bool = False
    lm_weight: LossWeight = 0.0

    @classmethod
    def default_rows(cls) -> RowSchema:
        return LabelledTexts(numeric_label=True)

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 0.5  # of the same rows; the labels decide


implements(Regression, "weft.tasks.classification:RegressionTask")


@choice
class MultipleChoice(PairTask):
    """Predict which of several endings is right: one score per ending, softmax over the endings."""

    name = "choose"
    row_schemas = (ChoiceQuestions,)
    hf_class_suffix = "ForMultipleChoice"
    verb = None
    metrics = ("accuracy",)

    input_format: Literal["bert", "gpt"] = "bert"
    lm_weight: LossWeight = 0.0

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 2.0 if table.endings > 1 else 0.1


implements(MultipleChoice, "weft.tasks.multiple_choice:MultipleChoiceTask")


@choice
class TokenClassification(Task):
    """Predict a tag for the first piece of every word (BERT, section 5.3)."""

    name = "tag"
    row_schemas = (TaggedWords,)
    head = TokenClassifierHead
    hf_class_suffix = "ForTokenClassification"
    verb = "tag"
    metrics = ("f1", "accuracy")

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 3.0 if table.lists >= 2 else 0.1

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        return TokenClassifierHead(
            num_labels=len(labels or ()) or 1, labels=labels, dropout=dropout
        )


implements(TokenClassification, "weft.tasks.token_classification:TokenClassificationTask")


@choice
class QuestionAnswering(Task):
    """Predict where an answer starts and ends; no answer is the first token (BERT, section 4.3)."""

    name = "answer"
    row_schemas = (ContextQuestions,)
    file_format = "squad"
    head = SpanHead
    hf_class_suffix = "ForQuestionAnswering"
    verb = "answer"
    metrics = ("f1", "exact_match")
    packable = False

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        return 4.0 if table.format == cls.file_format else 0.1

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        return SpanHead()


implements(QuestionAnswering, "weft.tasks.question_answering:QuestionAnsweringTask")


# Images, and teachers


@choice
class MaskedAutoencoding(Task):
    """Reconstruct the masked patches of an image (MAE, arXiv:2111.06377)."""

    row_schemas = (LabelledImages,)
    head = PixelDecoder
    hf_class_suffix = "ForPreTraining"
    verb = "reconstruct"
    loss_unit = "squared error"
    packable = False

    mask_rate: Probability = 0.75
    normalise_pixels: bool = True  # each patch's pixels by their own mean and deviation
    transforms: tuple[Transform, ...] | None = (
        None  # in training; None: a random resized crop, mirrored half of the time
    )
    eval_transforms: tuple[Transform, ...] | None = None  # elsewhere; None: as `transforms` say

    def __post_init__(self) -> None:
        check_transforms(self.transforms, self.eval_transforms)
        if any(transform.stage == "mix" for transform in self.transforms or ()):
            raise ValueError(
                "MaskedAutoencoding rebuilds one image at a time; leave MixUp and CutMix out of "
                "transforms"
            )

    def visible_fraction(self) -> float:
        return 1 - self.mask_rate


implements(MaskedAutoencoding, "weft.tasks.masked_autoencoding:MaskedAutoencodingTask")


@choice
class DenoisingQueries:
    """Further queries in training: each labelled box, moved, scaled and its class perhaps changed,
    in several versions that do not see each other, to be put right (DN-DETR, arXiv:2203.01305,
    section 4).
    """

    groups: PositiveInt = 5  # versions of each box
    shift: Probability = 0.4  # of the centre, at most, as a fraction of half the box's sides
    scale: Probability = 0.4  # of the sides, at most
    label_flip: Probability = 0.2  # probability of a random class


@choice
class Detection(Task):
    """The boxes of the objects of an image, each with its class: predictions are matched one to one
    with the labelled boxes, then scored (DETR, arXiv:2005.12872, section 3.1). The weights are
    those of the matching cost too.
    """

    name = "detect"
    row_schemas = (ImagesWithBoxes,)
    head = DetectionHead
    hf_class_suffix = "ForObjectDetection"
    verb = "detect"
    metrics = ("ap", "ap50", "ap75")
    metric_packages: ClassVar[dict[str, str]] = {"faster_coco_eval": "vision"}
    packable = False

    class_weight: LossWeight = 1.0
    l1_weight: LossWeight = 5.0
    giou_weight: LossWeight = 2.0
    class_cost: LossWeight | None = None  # of the matching alone; None: the weight
    no_object_weight: PositiveFraction = 0.1  # of a query that is matched with nothing
    auxiliary_losses: bool = True  # the same loss after every layer of the decoder
    denoising: DenoisingQueries | None = None  # for anchor queries
    transforms: tuple[Transform, ...] | None = None  # in training; None: Normalize() alone
    eval_transforms: tuple[Transform, ...] | None = None  # elsewhere; None: as `transforms` say

    def __post_init__(self) -> None:
        if not (self.class_weight or self.l1_weight or self.giou_weight):
            raise ValueError("all weights are 0: nothing could be matched; give one of them")
        check_transforms(self.transforms, self.eval_transforms)
        if any(transform.stage == "mix" for transform in self.transforms or ()):
            raise ValueError(
                "Detection has no mixed boxes; leave MixUp and CutMix out of transforms"
            )
        crops = (CenterCrop, RandomCrop, RandomResizedCrop, RandomSizeCrop)
        if any(isinstance(step, crops) for step in transforms_for(self, evaluation=True) or ()):
            raise ValueError(
                "Detection looks for boxes in the whole image, and its evaluation would crop it; "
                "give eval_transforms without a crop, such as (Resize(size=800, max_size=1333), "
                "Normalize())"
            )

    def for_inference(self, rows: RowSchema) -> Task:
        """Leave out what only the loss needs."""
        return replace(self, auxiliary_losses=False, denoising=None)


implements(Detection, "weft.tasks.detection:DetectionTask")


@choice
class Distillation(Task):
    """Learn from a teacher: from its softened logits (arXiv:1503.02531), or from its class with a
    distillation token (DeiT, arXiv:2012.12877).
    """

    row_schemas = (Documents, LabelledTexts, LabelledImages)
    packable = False
    model_folders = ("teacher",)

    teacher: str  # a model folder
    hard_labels: bool = False
    temperature: PositiveFloat = 3.0
    teacher_weight: PositiveFraction = 0.5
    label_smoothing: Probability = 0.0  # of the data's own labels
    transforms: tuple[Transform, ...] | None = None  # of images, as in Classification
    eval_transforms: tuple[Transform, ...] | None = None

    def __post_init__(self) -> None:
        check_transforms(self.transforms, self.eval_transforms)

    def validation_metrics(self, rows: RowSchema) -> tuple[str, ...]:
        return self.for_inference(rows).metrics

    def for_inference(self, rows: RowSchema) -> Task:
        """Return the task that the student was taught."""
        if isinstance(rows, Documents):
            return CausalLM()
        return Classification(transforms=self.transforms, eval_transforms=self.eval_transforms)


implements(Distillation, "weft.tasks.distillation:DistillationTask")
