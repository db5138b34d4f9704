"""What a row of data holds."""

import re
from typing import Any, ClassVar

from ...spec import PositiveInt
from ...support.registry import choice, implements
from .cells import label_index, number, require_cell, short

TEMPLATE_FIELD = re.compile(r"\{([^{}]+)\}")  # a column's name in a template


class RowSchema:
    """Base of everything that a row of data can be: which columns are read, and what they must
    hold.

    What encodes it is registered with `implements`: a class that is called with the value, a
    tokenizer and the labels.

    Attributes:
        name: what `weft prepare --rows` calls it.
        column_fields: the fields of the value that name columns, in the order of `--columns`.
        labels: the names of the classes in order; None: as sorted in the training data."""

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
        """The column whose values are classes, if there is one."""
        return None

    @property
    def number_column(self) -> str | None:
        """The column whose values are numbers, also where the table names them as classes, if there
        is one."""
        return None

    @property
    def length_columns(self) -> tuple[str, ...]:
        """The stored columns whose tokens together are the length of a row."""
        return ("tokens",)

    @property
    def input_shape(self) -> dict[str, Any]:
        """What rows of this kind must agree in, by field, so that one model can read them."""
        return {}

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        """Raise a ValueError that says what is wrong with a row; images are opened elsewhere.

        Args:
            fields: the cells of the row by column.
            labels: the names of the classes.
        """
        for name in self.text_columns:
            require_cell(fields, name)

    def check_image(self, fields: dict[str, Any], size: tuple[int, int]) -> None:
        """Raise a ValueError where a row does not fit its image.

        Args:
            fields: the cells of the row by column.
            size: width and height of the image in pixels.
        """

    def default_format(self, paths: tuple[str, ...]) -> str | None:
        """The format of files whose names do not say it; None: from their first lines."""
        return None


@choice
class Documents(RowSchema):
    """Running text. Each document ends with the end token; `sentences` also keeps where each
    sentence starts."""

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
    """A source and its target, as in translation."""

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
    """A source text written from columns by a template, and its target text: T5's text-to-text
    format (arXiv:1910.10683, section 2.4)."""

    name = "templated"
    length_columns = ("source", "target")

    template: str = (
        "{source}"  # columns in braces: "mrpc sentence1: {sentence1} sentence2: {sentence2}"
    )
    target: str = "target"
    labels: tuple[str, ...] | None = (
        None  # the target column holds one of these classes; None: any text
    )
    label_texts: tuple[str, ...] | None = None  # the text decoded for each class; None: its name

    def __post_init__(self) -> None:
        if not self.template_columns:
            raise ValueError(
                f"template = {self.template!r} names no column; put one in braces, such as {{text}}"
            )
        if self.label_texts is not None and len(self.label_texts) != len(self.labels or ()):
            raise ValueError(
                f"label_texts = {self.label_texts}: give one per class, {len(self.labels or ())}"
            )
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(
                f"label_texts = {self.label_texts}: two classes with the same text cannot be told "
                "apart"
            )

    @property
    def template_columns(self) -> tuple[str, ...]:
        """The columns that the template names, each once."""
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
    """One or two texts and a label: a class, or a number where `numeric_label` is True."""

    name = "examples"
    column_fields = ("text", "second_text", "label")

    text: str = "text"
    second_text: str | None = None
    label: str = "label"
    numeric_label: bool = False
    labels: tuple[str, ...] | None = (
        None  # the classes in order; None: as sorted in the training data
    )

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
    """A context, several endings, and the number of the right one."""

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
            raise ValueError(f"label {short(label)} of {count} endings")


@choice
class TaggedWords(RowSchema):
    """Words with a tag each; a word's first piece carries it."""

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
    """A question and a context that may hold its answer; long contexts are read in windows `stride`
    tokens apart (BERT, section 4.2)."""

    name = "questions"
    length_columns = ("question", "context")

    max_length: PositiveInt = 384  # question, context and special tokens together
    stride: PositiveInt = 128
    max_question_length: PositiveInt = 64  # at most

    @property
    def text_columns(self) -> tuple[str, ...]:
        return "context", "question"

    @property
    def columns(self) -> tuple[str, ...]:
        """`answer_start` and `answer_end` are the characters of the answer in the context, -1 where
        there is none."""
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
