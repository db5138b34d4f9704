"""The options of a fine-tuning."""

from dataclasses import dataclass

from .. import recipe as R
from .. import spec as S
from ..data.quarantine import MAX_BAD_ROWS


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
    image_size: int | None = (
        None  # pixels, where images are read at another size than the checkpoint's
    )
    precision: str = "auto"
    seed: int = 0
    max_bad_row_fraction: float = MAX_BAD_ROWS
