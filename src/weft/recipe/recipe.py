"""A whole run as one value: model, task, data, optimiser, schedule, budget."""

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

# The run


@choice
class LossGuard:
    """Skip a step whose loss or gradient is not finite, or whose loss is `spike_deviations`
    standard deviations above the mean of the last `window` steps; more than `max_skipped_steps`
    such steps stop the run.
    """

    max_skipped_steps: NonNegativeInt = 3
    spike_deviations: PositiveFloat | None = None
    window: PositiveInt = 64


@choice
class Timeouts:
    """Seconds until a rank gives up: on a collective operation, in which it waits for busy ranks,
    and on a rank whose machine is silent.
    """

    collective: PositiveFloat = 600.0
    heartbeat: PositiveFloat = 15.0


@choice
class Checkpoints:
    """A checkpoint every `every_steps` steps and at the end; the newest `keep` are kept, and as
    many copies in object storage.
    """

    every_steps: PositiveInt = 500
    keep: PositiveInt = 2
    copy_to: Annotated[str, Field(pattern=r"^[a-z0-9]+://[^/]+/.+$")] | None = (
        None  # such as s3://bucket/run; a start without checkpoints continues from the newest copy
    )


@choice
class Recipe:
    """One experiment: a model, a task, data, an optimiser and a plan, as one value; `weft train`
    runs it into runs/<name>.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    model: Spec
    task: Task
    data: Data
    batch: Batching
    steps: PositiveInt
    optimiser: OptimiserSpec
    schedule: Schedule = LinearSchedule()
    length_schedule: tuple[
        tuple[PositiveFraction, PositiveInt], ...
    ] = ()  # (0.9, 128), (1.0, 512): rows of 128 tokens until 90 % of the steps, then of 512
    grad_clip: PositiveFloat | None = 1.0  # largest norm of the gradient
    trainable: Trainable | None = None  # None: everything
    average: WeightAverage | None = None
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")] = (
        # an accelerator if available, else the CPU; under torchrun, cuda is that of the local rank
        "auto"
    )
    precision: Literal["auto", "fp32", "bf16"] = (
        # auto: bf16 where the device is fast at it, else fp32; a run keeps what it began with
        "fp32"
    )
    micro_batch_size: PositiveInt | None = None  # rows in one forward pass on one rank; None: all
    activation_checkpointing: bool | ActivationCheckpointing = False  # True: every block
    compile: bool = False
    parallel: Parallel = Parallel()  # of the ranks that torchrun starts
    guard: LossGuard = LossGuard()
    timeouts: Timeouts = Timeouts()
    checkpoints: Checkpoints = Checkpoints()
    eval_every: PositiveInt | None = None  # steps between validations; None: only at the end
    workers: NonNegativeInt = 0  # data loading processes
    threads: PositiveInt | None = (
        None  # CPU threads of one process, on which the last bits depend; None: PyTorch's choice
    )
    exact: bool = (
        False  # the same bits on 1, 2, 4, 8, … data-parallel ranks; needs a micro_batch_size
    )
    # only algorithms of PyTorch that give the same bits each time, on CUDA too; some are slower
    deterministic: bool = False
    seed: NonNegativeInt = 0
    init_from: str | None = (
        None  # a model folder to start from: its trunk, and its head where it fits
    )
    loggers: tuple[Logger, ...] = ()  # experiment trackers beside log.jsonl
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
                f"length_schedule is for batches of rows; a {name} has no fixed length"
            )
        kinds = [type(logger).__name__ for logger in self.loggers]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"loggers = {', '.join(kinds)}: give each kind once")
        if self.batch.packs and not self.task.packable:
            raise ValueError(
                f"{type(self.task).__name__} makes one prediction per row, so samples cannot be "
                "packed; use FixedBatch or TokenBudget "
                "instead of PackedBatch"
            )
        if self.parallel.splits_weights and not self.optimiser.can_shard:
            raise ValueError(
                f"{type(self.optimiser).__name__} needs whole parameters; use AdamW, or parallel = "
                "Parallel()"
            )
        if self.exact:
            self.check_exact()
        if isinstance(self.average, BestCheckpoint):
            metric_names = ("loss", *self.task.validation_metrics(self.data.rows))
            if self.data.valid is None:
                raise ValueError(
                    "average = BestCheckpoint(…) chooses by the validation data; give data.valid"
                )
            if self.average.metric not in metric_names:
                raise ValueError(
                    f"BestCheckpoint.metric = {self.average.metric!r}: {type(self.task).__name__} "
                    f"has {', '.join(metric_names)}"
                )

    @property
    def training_schedule(self) -> TrainingSchedule:
        """The learning rate and the length of rows at each step."""
        phases = self.length_schedule or ((1.0, self.batch.length),)
        return TrainingSchedule(self.steps, self.schedule, phases)

    def validates_at(self, step: int) -> bool:
        """Whether validation is due after a step that is not the last one."""
        due = self.eval_every is not None and step > 0 and step % self.eval_every == 0
        return due and step < self.steps

    def averaged_steps(self) -> list[int]:
        """The steps whose checkpoints are averaged: the last scheduled ones, so that a stop between
        two of them changes nothing.
        """
        if not isinstance(self.average, AverageLast):
            return []
        every = self.checkpoints.every_steps
        steps = sorted({*range(every, self.steps, every), self.steps})
        return steps[-self.average.checkpoints :]

    def checkpoints_kept(self) -> int:
        """How many checkpoints are on disk at once."""
        return max(self.checkpoints.keep, len(self.averaged_steps()))

    @property
    def metric(self) -> str | None:
        """The task's metric that the run is judged by beside the loss; None where the task has no
        metric.
        """
        if isinstance(self.average, BestCheckpoint) and self.average.metric != "loss":
            return self.average.metric
        return next(iter(self.task.validation_metrics(self.data.rows)), None)

    def to_json(self) -> str:
        return to_json(self)

    def check_exact(self) -> None:
        """Raise ValueError for what makes the bits of a step depend on the number of ranks."""
        if self.micro_batch_size is None:
            raise ValueError(
                "exact = True: micro_batch_size = None: the rows of a forward pass depend on the "
                "ranks; give a number, such as --set micro_batch_size=4"
            )
        if self.parallel.splits_weights:
            raise ValueError(
                "exact = True: parallel splits weights or layers, whose sums depend on the ranks; "
                "use Parallel()"
            )
        if self.compile:
            raise ValueError(
                "exact = True: compile = True: a compiler may order sums by the shape; use "
                "compile = False"
            )
        if isinstance(self.average, BestCheckpoint):
            raise ValueError(
                "exact = True: BestCheckpoint chooses by validation, whose sums depend on the "
                "ranks; use EMA or AverageLast"
            )


def warmup_warning(schedule: Schedule, steps: int) -> str | None:
    """Return a warning for a run that ends before its warm-up does; None for any other."""
    warmup = getattr(schedule, "warmup_steps", 0)
    if warmup <= steps:
        return None
    share = schedule.scale(steps - 1, steps)
    return (
        f"schedule.warmup_steps = {warmup:,} is longer than the run of {steps:,} steps: the "
        "learning rate ends "
        f"at {share:.0%} of its peak and never falls; use "
        f"schedule.warmup_steps={max(1, steps // 10)}"
    )


def sample_unit(model: Spec) -> str:
    """What a run of a model reads and its speed is counted in."""
    return "tokens" if isinstance(model.source, S.Tokens) else "images"
