"""Row schemas for text: which columns a run reads and what they contain."""

import re
from typing import Any, ClassVar

from ...spec import PositiveInt
from ...support.registry import choice, implements
from .cells import label_index, number, require_cell, short

TEMPLATE_FIELD = re.compile(r"\{([^{}]+)\}")  # a column's name in a template


class RowSchema:
    """Base of row schemas: which columns are read and what they must contain.

    Its implementation, an encoder, is registered with `implements`: a class that is called with the
    value, a tokenizer and the labels.

    Attributes:
        name: the name in `weft prepare --rows`.
        column_fields: the fields that name columns, in the order of `--columns`.
        labels: the names of the classes in order; None: sorted, from the training data.
    """

    name: ClassVar[str]
    column_fields: ClassVar[tuple[str, ...]] = ()
    labels: tuple[str, ...] | None = None

    @property
    def image_columns(self) -> tuple[str, ...]:
        """The columns that hold encoded images."""
        return ()

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold text, which a tokenizer is trained on."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.text_columns, *self.image_columns, *filter(None, [self.label_column]))

    @property
    def label_column(self) -> str | None:
        """The column of classes; None without one."""
        return None

    @property
    def number_column(self) -> str | None:
        """The column of numbers, even if the table names them as classes; None without one."""
        return None

    @property
    def length_columns(self) -> tuple[str, ...]:
        """The stored columns whose tokens together give the length of a row."""
        return ("tokens",)

    @property
    def input_shape(self) -> dict[str, Any]:
        """Properties by field that all rows of one model must share."""
        return {}

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        """Raise ValueError for an invalid row; images are opened elsewhere.

        Args:
            fields: the cells of the row by column.
            labels: the names of the classes.
        """
        for name in self.text_columns:
            require_cell(fields, name)

    def check_image(self, fields: dict[str, Any], size: tuple[int, int]) -> None:
        """Raise ValueError for a row that does not match its image.

        Args:
            fields: the cells of the row by column.
            size: width and height of the image in pixels.
        """

    def default_format(self, paths: tuple[str, ...]) -> str | None:
        """Return the format of files whose names do not imply one; None: detected from their first
        lines.
        """
        return None


@choice
class Documents(RowSchema):
    """Running text; each document ends with the end token.

    Args:
        text: the column of the text (default: "text").
        sentence_boundaries: whether to store the start of each sentence (default: False).
    """

    name = "documents"
    column_fields = ("text",)

    text: str = "text"
    sentence_boundaries: bool = False

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.text,)

    def default_format(self, paths: tuple[str, ...]) -> str:
        return "text"


@choice
class SourceTargetPairs(RowSchema):
    """A source text and its target text, as in translation.

    Args:
        source: the column of the source (default: "source").
        target: the column of the target (default: "target").
    """

    name = "pairs"
    column_fields = ("source", "target")
    length_columns = ("source", "target")

    source: str = "source"
    target: str = "target"

    @property
    def text_columns(self) -> tuple[str, ...]:
        return self.source, self.target

    def source_text(self, fields: dict[str, Any]) -> str:
        text: str = fields[self.source]
        return text

    def target_text(self, fields: dict[str, Any]) -> str:
        text: str = fields[self.target]
        return text

    def default_format(self, paths: tuple[str, ...]) -> str | None:
        return "parallel" if len(paths) == 2 else None


@choice
class TemplatedPairs(RowSchema):
    """A source text made from columns by a template, and its target text: T5's text-to-text format
    (arXiv:1910.10683, section 2.4).

    Args:
        template: the source text with columns in braces, such as "mrpc sentence1: {sentence1}
            sentence2: {sentence2}" (default: "{source}").
        target: the column of the target (default: "target").
        labels: the classes of the target column (default: any text).
        label_texts: the target text of each class (default: its name).
    """

    name = "templated"
    length_columns = ("source", "target")

    template: str = "{source}"
    target: str = "target"
    labels: tuple[str, ...] | None = None
    label_texts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.template_columns:
            raise ValueError(
                f"TemplatedPairs.template = {self.template!r} contains no column; put one in "
                "braces, such as {text}"
            )
        if self.label_texts is not None and len(self.label_texts) != len(self.labels or ()):
            raise ValueError(
                f"TemplatedPairs.label_texts = {self.label_texts}: give one per class, "
                f"{len(self.labels or ())}"
            )
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(
                f"TemplatedPairs.label_texts = {self.label_texts} has duplicates; give each class "
                "a different text"
            )

    @property
    def template_columns(self) -> tuple[str, ...]:
        """The columns in the template, each once."""
        return tuple(dict.fromkeys(TEMPLATE_FIELD.findall(self.template)))

    @property
    def text_columns(self) -> tuple[str, ...]:
        return self.columns if self.labels is None else self.template_columns

    @property
    def columns(self) -> tuple[str, ...]:
        return *self.template_columns, self.target

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        super().check(fields, labels)
        if self.labels is not None:
            label_index(self.labels, require_cell(fields, self.target, object))

    @property
    def targets(self) -> tuple[str, ...]:
        """The text of each class."""
        return self.label_texts or self.labels or ()

    def source_text(self, fields: dict[str, Any]) -> str:
        return TEMPLATE_FIELD.sub(lambda match: str(fields[match[1]]), self.template)

    def target_text(self, fields: dict[str, Any]) -> str:
        cell = str(fields[self.target])
        return cell if self.labels is None else self.targets[self.labels.index(cell)]

    def default_format(self, paths: tuple[str, ...]) -> str | None:
        return "parallel" if len(paths) == 2 else None


@choice
class LabelledTexts(RowSchema):
    """One or two texts and a label: a class or a number.

    Args:
        text: the column of the text (default: "text").
        second_text: the column of a second text (default: none).
        label: the column of the label (default: "label").
        numeric_label: whether the label is a number (default: False).
        labels: the names of the classes in order (default: sorted, from the training data).
    """

    name = "examples"
    column_fields = ("text", "second_text", "label")

    text: str = "text"
    second_text: str | None = None
    label: str = "label"
    numeric_label: bool = False
    labels: tuple[str, ...] | None = None

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.text, self.second_text) if self.second_text else (self.text,)

    @property
    def columns(self) -> tuple[str, ...]:
        return *self.text_columns, self.label

    @property
    def length_columns(self) -> tuple[str, ...]:
        return ("first", "second") if self.second_text else ("first",)

    @property
    def input_shape(self) -> dict[str, Any]:
        return {"second_text": self.second_text is not None, "labels": self.labels}

    @property
    def label_column(self) -> str | None:
        return None if self.numeric_label else self.label

    @property
    def number_column(self) -> str | None:
        return self.label if self.numeric_label else None

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        super().check(fields, labels)
        label = require_cell(fields, self.label, object)
        if self.numeric_label:
            number(self.label, label)
        else:
            label_index(labels, label)


@choice
class ChoiceQuestions(RowSchema):
    """A context, several endings and the index of the correct ending.

    Args:
        context: the column of the context (default: "context").
        endings: the columns of the endings, or one column of lists (default: ("ending0", "ending1",
            "ending2", "ending3")).
        label: the column of the index, from 0 (default: "label").
    """

    name = "choices"
    length_columns = ("context", "endings")

    context: str = "context"
    endings: tuple[str, ...] = ("ending0", "ending1", "ending2", "ending3")
    label: str = "label"

    @property
    def text_columns(self) -> tuple[str, ...]:
        return self.context, *self.endings

    @property
    def columns(self) -> tuple[str, ...]:
        return *self.text_columns, self.label

    @property
    def input_shape(self) -> dict[str, Any]:
        return {"endings": len(self.endings)}

    @property
    def number_column(self) -> str:
        return self.label

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        if len(self.endings) > 1:
            super().check(fields, labels)
            count = len(self.endings)
        else:
            require_cell(fields, self.context)
            count = len(require_cell(fields, self.endings[0], list, str))
        label = require_cell(fields, self.label, object)
        index = number(self.label, label)
        if not 0 <= index < count or not index.is_integer():
            raise ValueError(
                f"{self.label} is {short(label)}; give the index of one of {count} endings, from 0"
            )


@choice
class TaggedWords(RowSchema):
    """Words with one tag each, which the first token of a word carries.

    Args:
        words: the column of the words (default: "words").
        tags: the column of the tags (default: "tags").
        labels: the names of the tags in order (default: sorted, from the training data).
    """

    name = "tagged"
    column_fields = ("words", "tags")

    words: str = "words"
    tags: str = "tags"
    labels: tuple[str, ...] | None = None

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.words,)

    @property
    def label_column(self) -> str:
        return self.tags

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        words = require_cell(fields, self.words, list, str)
        tags = require_cell(fields, self.tags, list)
        if len(words) != len(tags):
            raise ValueError(f"{len(words)} words but {len(tags)} tags")
        for tag in tags:
            label_index(labels, tag)

    def default_format(self, paths: tuple[str, ...]) -> str:
        return "conll"


@choice
class ContextQuestions(RowSchema):
    """A question and a context that may contain its answer; long contexts are split into
    overlapping windows (BERT, section 4.2).

    Args:
        max_length: the longest row of question, context and special tokens, in tokens (default:
            384).
        stride: the distance between the starts of two windows, in tokens (default: 128).
        max_question_length: the longest question in tokens (default: 64).
    """

    name = "questions"
    length_columns = ("question", "context")

    max_length: PositiveInt = 384
    stride: PositiveInt = 128
    max_question_length: PositiveInt = 64

    @property
    def text_columns(self) -> tuple[str, ...]:
        return "context", "question"

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns; `answer_start` and `answer_end` are character offsets of the answer in the
        context, -1 without an answer.
        """
        return *self.text_columns, "id", "answer_start", "answer_end"

    @property
    def input_shape(self) -> dict[str, Any]:
        return {"max_length": self.max_length}

    def default_format(self, paths: tuple[str, ...]) -> str:
        return "squad"


implements(Documents, "weft.data.shards.encode:DocumentEncoder")
implements(SourceTargetPairs, "weft.data.shards.encode:PairEncoder")
implements(TemplatedPairs, "weft.data.shards.encode:PairEncoder")
implements(LabelledTexts, "weft.data.shards.encode:LabelledTextEncoder")
implements(ChoiceQuestions, "weft.data.shards.encode:ChoiceEncoder")
implements(TaggedWords, "weft.data.shards.encode:TaggedWordEncoder")
implements(ContextQuestions, "weft.data.shards.encode:QuestionEncoder")
