"""The `Recipe` dataclass, which describes a training run, and its settings for checkpoints,
timeouts and bad losses.
"""

from typing import Annotated, Literal

from pydantic import Field

from .. import spec as S
from ..spec import NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt, Spec
from ..support.registry import choice
from ..support.values import to_json
from .averages import AverageLast, BestCheckpoint, WeightAverage
from .batching import Batching
from .data.data import Data
from .loggers import Logger
from .optimisers import OptimiserSpec
from .parallel import ActivationCheckpointing, Parallel
from .schedules import LinearSchedule, Schedule, TrainingSchedule
from .tasks import Task
from .trainable import Trainable


@choice
class LossGuard:
    """Skips steps with a bad loss: a loss or gradient that is not finite, or a spike in the loss.

    Args:
        max_skipped_steps: the number of skipped steps after which the run stops with an error
            (default: 3).
        spike_deviations: skip a step whose loss exceeds the recent mean by this many standard
            deviations (default: never).
        window: the number of recent steps for mean and deviation (default: 64).
    """

    max_skipped_steps: NonNegativeInt = 3
    spike_deviations: PositiveFloat | None = None
    window: PositiveInt = 64


@choice
class Timeouts:
    """Timeouts in seconds of communication between ranks.

    Args:
        collective: the limit of a collective operation, which waits for busy ranks (default: 600).
        heartbeat: the limit without a sign of life from a rank's machine (default: 15).
    """

    collective: PositiveFloat = 600.0
    heartbeat: PositiveFloat = 15.0


@choice
class Checkpoints:
    """When checkpoints are written and how many are kept. One is always written at the end.

    Args:
        every_steps: the steps between checkpoints (default: 500).
        keep: the number of checkpoints kept, here and in object storage (default: 2).
        copy_to: an object-storage address for copies, such as s3://bucket/run; a run without local
            checkpoints continues from the newest copy (default: none).
    """

    every_steps: PositiveInt = 500
    keep: PositiveInt = 2
    copy_to: Annotated[str, Field(pattern=r"^[a-z0-9]+://[^/]+/.+$")] | None = None


@choice
class Recipe:
    """A training run as one value; `weft train` writes its results to runs/<name>.

    The fields are checked at construction; invalid combinations raise ValueError with the path of
    the field and a fix.

    Args:
        name: the name of the run and its directory: letters, digits, ".", "_" and "-".
        model: the model's spec.
        task: the training objective.
        data: training and validation data.
        batch: how samples become batches.
        steps: the number of optimiser updates.
        optimiser: the optimiser and its peak learning rate.
        schedule: the learning-rate schedule (default: `LinearSchedule()`).
        length_schedule: pairs of a fraction of the steps and the row length in tokens until then:
            ((0.9, 128), (1.0, 512)) trains rows of 128 tokens for 90 % of the steps, then of 512
            (default: `batch.length` throughout).
        grad_clip: the largest norm of the gradient; None: no clipping (default: 1).
        trainable: the weights to train, such as `LoRA()` (default: all).
        average: the weights at the end of the run, such as `EMA()` (default: the last ones).
        device: "auto" (an accelerator if available, else the CPU), "cpu", "cuda", "cuda:N" or
            "mps"; under torchrun, "cuda" is the GPU of the local rank (default: "auto").
        precision: "fp32", "bf16" or "auto" (bf16 where the device is fast at it, else fp32); a
            resumed run keeps its precision (default: "fp32").
        micro_batch_size: rows per forward pass and rank (default: all rows of a step).
        activation_checkpointing: recompute activations in the backward pass; True: every block
            (default: False).
        compile: whether to use torch.compile (default: False).
        parallel: how ranks split the model (default: data parallelism).
        guard: when bad steps are skipped (default: `LossGuard()`).
        timeouts: timeouts between ranks (default: `Timeouts()`).
        checkpoints: when checkpoints are written (default: `Checkpoints()`).
        eval_every: the steps between validations (default: only at the end).
        workers: the number of data loading processes (default: 0).
        threads: CPU threads per process; the last bits of results depend on it (default: PyTorch's
            choice).
        exact: whether results are bit-identical on 1, 2, 4, 8, … data-parallel ranks; needs
            `micro_batch_size` (default: False).
        deterministic: whether to use only PyTorch algorithms that give the same bits each time,
            also on CUDA; some are slower (default: False).
        seed: the seed of all random numbers (default: 0).
        init_from: a model directory to start from: its body, and its head if the shapes match
            (default: random weights).
        loggers: experiment trackers in addition to log.jsonl (default: none).
        paper: the reference of the experiment (default: "").
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    model: Spec
    task: Task
    data: Data
    batch: Batching
    steps: PositiveInt
    optimiser: OptimiserSpec
    schedule: Schedule = LinearSchedule()
    length_schedule: tuple[tuple[PositiveFraction, PositiveInt], ...] = ()
    grad_clip: PositiveFloat | None = 1.0
    trainable: Trainable | None = None
    average: WeightAverage | None = None
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "fp32"
    micro_batch_size: PositiveInt | None = None
    activation_checkpointing: bool | ActivationCheckpointing = False
    compile: bool = False
    parallel: Parallel = Parallel()
    guard: LossGuard = LossGuard()
    timeouts: Timeouts = Timeouts()
    checkpoints: Checkpoints = Checkpoints()
    eval_every: PositiveInt | None = None
    workers: NonNegativeInt = 0
    threads: PositiveInt | None = None
    exact: bool = False
    deterministic: bool = False
    seed: NonNegativeInt = 0
    init_from: str | None = None
    loggers: tuple[Logger, ...] = ()
    paper: str = ""

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.length_schedule]
        if shares and (sorted(set(shares)) != shares or shares[-1] != 1):
            raise ValueError(
                f"length_schedule = {self.length_schedule}: fractions of the steps must increase "
                "and end at 1"
            )
        if self.length_schedule and not self.batch.fixed_length:
            name = type(self.batch).__name__
            raise ValueError(
                f"length_schedule = {self.length_schedule}: {name} has no fixed row length; use "
                "FixedBatch or PackedBatch, or leave length_schedule empty"
            )
        kinds = [type(logger).__name__ for logger in self.loggers]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"loggers = {', '.join(kinds)}: give each type once")
        if self.batch.packs and not self.task.packable:
            raise ValueError(
                f"{type(self.task).__name__} makes one prediction per row, so samples cannot be "
                "packed; use FixedBatch or TokenBudget instead of PackedBatch"
            )
        if self.parallel.splits_weights and not self.optimiser.can_shard:
            raise ValueError(
                f"optimiser = {type(self.optimiser).__name__} does not support sharded parameters; "
                "use AdamW or parallel = Parallel()"
            )
        if self.exact:
            self.check_exact()
        if isinstance(self.average, BestCheckpoint):
            metric_names = ("loss", *self.task.validation_metrics(self.data.rows))
            if self.data.valid is None:
                raise ValueError(
                    "average = BestCheckpoint(…) needs validation data; give data.valid"
                )
            if self.average.metric not in metric_names:
                raise ValueError(
                    f"BestCheckpoint.metric = {self.average.metric!r}: {type(self.task).__name__} "
                    f"supports {', '.join(metric_names)}"
                )

    @property
    def training_schedule(self) -> TrainingSchedule:
        """The learning rate and row length at each step."""
        phases = self.length_schedule or ((1.0, self.batch.length),)
        return TrainingSchedule(self.steps, self.schedule, phases)

    def validates_at(self, step: int) -> bool:
        """Return whether validation runs after a step before the last one.

        Args:
            step: the number of finished steps.
        """
        due = self.eval_every is not None and step > 0 and step % self.eval_every == 0
        return due and step < self.steps

    def averaged_steps(self) -> list[int]:
        """Return the steps whose checkpoints are averaged: the last scheduled ones, so that an
        interruption between them changes nothing.
        """
        if not isinstance(self.average, AverageLast):
            return []
        every = self.checkpoints.every_steps
        steps = sorted({*range(every, self.steps, every), self.steps})
        return steps[-self.average.checkpoints :]

    def checkpoints_kept(self) -> int:
        """Return how many checkpoints are on disk at once."""
        return max(self.checkpoints.keep, len(self.averaged_steps()))

    @property
    def metric(self) -> str | None:
        """The task's metric, in addition to the loss, that ranks runs; None if the task has no
        metric.
        """
        if isinstance(self.average, BestCheckpoint) and self.average.metric != "loss":
            return self.average.metric
        return next(iter(self.task.validation_metrics(self.data.rows)), None)

    def to_json(self) -> str:
        """Return the recipe as JSON."""
        return to_json(self)

    def check_exact(self) -> None:
        """Raise ValueError for settings that make the bits of a step depend on the number of
        ranks.
        """
        if self.micro_batch_size is None:
            raise ValueError(
                "exact = True: micro_batch_size = None makes rows per forward pass depend on the "
                "ranks; give a number, such as --set micro_batch_size=4"
            )
        if self.parallel.splits_weights:
            raise ValueError(
                "exact = True: sums of split weights depend on the ranks; use parallel = Parallel()"
            )
        if self.compile:
            raise ValueError(
                "exact = True: compile = True may order sums by the shape; use compile = False"
            )
        if isinstance(self.average, BestCheckpoint):
            raise ValueError(
                "exact = True: BestCheckpoint depends on validation sums, which depend on the "
                "ranks; use average = EMA() or AverageLast()"
            )


def warmup_warning(schedule: Schedule, steps: int) -> str | None:
    """Return a warning if a run ends before its warm-up, else None."""
    warmup = getattr(schedule, "warmup_steps", 0)
    if warmup <= steps:
        return None
    share = schedule.scale(steps - 1, steps)
    return (
        f"schedule.warmup_steps = {warmup:,} exceeds the run's {steps:,} steps: the learning rate "
        f"ends at {share:.0%} of its peak and never decays; use "
        f"schedule.warmup_steps={max(1, steps // 10)}"
    )


def sample_unit(model: Spec) -> str:
    """Return the unit of a model's inputs, in which speed is measured."""
    return "tokens" if isinstance(model.source, S.Tokens) else "images"
