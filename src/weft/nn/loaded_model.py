"""A model with what lies beside it: its tokenizer, the recipe that trained it, its folder."""

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
        name: as the user gave it.
        model: the module, in eval mode.
        tokenizer: None where the folder has none.
        recipe: of a run; None for the folder of a model.
        folder: of the run or of the model.
    """

    name: str
    model: Model
    tokenizer: Tokenizer | None
    recipe: Recipe | None
    folder: Path

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the head's classes or tags."""
        return getattr(self.model.spec.head, "labels", None)

    @property
    def reads_images(self) -> bool:
        """Whether it reads images, not text."""
        return not isinstance(self.model.spec.source, Tokens)

    @property
    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer; a ValueError where the folder has none."""
        check_reads_text(self)
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} holds no tokenizer.json; put the one that it was trained with beside "
                "its weights"
            )
        return self.tokenizer


def image_command(model: LoadedModel) -> str:
    """Return the command that asks a model of images."""
    return f"weft {verb_for(model.model.spec) or 'embed'} {model.name} IMAGE"


def check_reads_text(model: LoadedModel) -> None:
    """Raise ValueError for a model that reads images."""
    if model.reads_images:
        raise ValueError(f"{model.name} reads images, not text; use {image_command(model)}")
