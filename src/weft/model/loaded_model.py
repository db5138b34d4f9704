"""A model with what lies beside it: its tokenizer, the recipe that trained it, its folder."""

from dataclasses import dataclass
from pathlib import Path

from ..data.tokenizer import Tokenizer
from ..recipe import Recipe
from ..spec import ClassifierHead, DetectionHead, PixelDecoder, Tokens
from .model import Model

IMAGE_VERBS = {
    ClassifierHead: ("classify", "IMAGE"),
    DetectionHead: ("detect", "IMAGE"),
    PixelDecoder: ("reconstruct", "IMAGE", "--draw", "PICTURE"),
}


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
        self.check_reads_text()
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} holds no tokenizer.json; put the one that it was trained with beside its weights"
            )
        return self.tokenizer

    def check_reads_text(self) -> None:
        """Raise a ValueError that names the verb for images where it reads these."""
        if self.reads_images:
            verb, *rest = IMAGE_VERBS.get(type(self.model.spec.head), ("embed", "IMAGE"))
            words = " ".join(("weft", verb, self.name, *rest))
            raise ValueError(f"{self.name} reads images, not text; use {words}")
