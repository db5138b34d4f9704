"""A loaded model with its tokenizer, training recipe and directory."""

from dataclasses import dataclass
from pathlib import Path

from ..data.tokenizing.tokenizer import Tokenizer
from ..recipe import Recipe, verb_for
from ..spec import Tokens
from .model import Model


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model and its files.

    Attributes:
        name: the name that the user gave.
        model: the module, in eval mode.
        tokenizer: the tokenizer; None if the directory has none.
        recipe: the recipe of a run; None for a model directory.
        folder: the directory of the run or model.
    """

    name: str
    model: Model
    tokenizer: Tokenizer | None
    recipe: Recipe | None
    folder: Path

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the head's classes."""
        return getattr(self.model.spec.head, "labels", None)

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images, not text."""
        return not isinstance(self.model.spec.source, Tokens)

    @property
    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer; ValueError if the directory has none."""
        check_reads_text(self)
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} has no tokenizer.json; copy the model's tokenizer.json to the "
                "directory of its weights"
            )
        return self.tokenizer


def image_command(model: LoadedModel) -> str:
    """Return the command for predictions of an image model."""
    return f"weft {verb_for(model.model.spec) or 'embed'} {model.name} IMAGE"


def check_reads_text(model: LoadedModel) -> None:
    """Raise ValueError for a model that reads images."""
    if model.reads_images:
        raise ValueError(f"{model.name} reads images, not text; use {image_command(model)}")
