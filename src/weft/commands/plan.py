"""The command `weft plan`: parameters, FLOPs, memory, communication and time of a run, before it
starts."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..support.console import (
    format_duration,
    format_number,
    print_result,
    report_on_first_rank,
    spinner,
)
from ..support.options.declare import Option
from ..support.options.shared import Overrides, VerbOptions
from .files import check_outside_model

if TYPE_CHECKING:
    from rich.console import RenderableType as Page

    from ..plan.hardware import Accelerator
    from ..plan.plan import Plan, Wishes
    from ..plan.recipe_workload import Workload

SCALES = (0.25, 0.5, 1, 2, 4)  # of the devices, for time against their number


@dataclass(frozen=True, kw_only=True)
class PlanOptions(VerbOptions):
    """The options of `weft plan`."""

    name: Annotated[
        str,
        Option(
            "model such as gpt3-175b, model folder, or recipe such as recipes/bert.py:paper",
            metavar="NAME",
            positional=True,
        ),
    ]
    gpus: Annotated[
        int | None, Option("number of devices", default="as few as fit", metavar="N", least=1)
    ] = None
    tensor: Annotated[
        int | None,
        Option(
            "number of devices that split each layer (tensor parallelism)",
            default="the fastest",
            metavar="N",
            least=1,
        ),
    ] = None
    shard: Annotated[
        int | None,
        Option(
            "number of devices that shard weights and optimiser state",
            default="the fastest",
            metavar="N",
            least=1,
        ),
    ] = None
    micro_batch_size: Annotated[
        int | None,
        Option("rows per forward pass and device", default="the fastest", metavar="N", least=1),
    ] = None
    row_length: Annotated[
        int | None,
        Option(
            "tokens per row, or pixels per image side",
            default="the model's own",
            metavar="N",
            least=1,
        ),
    ] = None
    kind: Annotated[
        str,
        Option(
            "kind of device: h100, h200, b200, a100, a100-40gb, v100, p100, mi300x, "
            "rtx4090, tpu-v4 or cpu",
            metavar="DEVICE",
        ),
    ] = "h100"
    tokens: Annotated[
        float | None,
        Option(
            "number of tokens or images to train on",
            default="20 tokens per parameter, or the recipe's",
            metavar="N",
            above=0,
            example="300e9",
        ),
    ] = None
    checkpointing: Annotated[
        bool,
        Option("recompute each block in the backward pass", default="where it is fastest"),
    ] = False
    simulate: Annotated[
        bool,
        Option(
            "experimental: also measure the memory and collectives of one rank of the real model, "
            "on a fake process group",
        ),
    ] = False
    picture: Annotated[
        str | None,
        Option(
            "image file for memory by part and time by number of devices (.png, .svg or .pdf)",
            metavar="FILE",
        ),
    ] = None
    set: Overrides = ()


def plan(options: PlanOptions) -> int:
    """Plan a run: FLOPs, memory per device and time before it starts.

    If the run does not fit, the error names the smallest number of devices that does.
    """
    from ..plan.hardware import accelerator
    from ..plan.plan import find_plan

    check_outside_model("--picture", [options.picture], options.name)
    device = accelerator(options.kind)
    workload, wishes = workload_and_wishes(options, device)
    best = find_plan(workload, device, wishes)
    scaling = plans_by_devices(workload, best, wishes)
    plain = best.to_plain() | {"scaling": [scaling_row(p) for p in scaling]}
    if options.simulate:
        plain["simulation"] = run_simulation(best)
    if options.picture:
        from ..plan.picture import draw

        draw(best, scaling, options.picture)
        plain["picture"] = options.picture
    print_result(options.json, plain, lambda width: plan_page(best, scaling, plain))
    return 0


def workload_and_wishes(options: PlanOptions, device: "Accelerator") -> tuple["Workload", "Wishes"]:
    """Return the workload of a recipe or model, and the layout constraints from its options."""
    from ..plan.plan import Wishes
    from ..plan.recipe_workload import workload_of_recipe
    from ..plan.workload import with_samples, workload_of_spec
    from .models import is_recipe, named_spec

    wishes = Wishes(
        options.gpus,
        options.tensor,
        options.shard,
        options.micro_batch_size,
        options.checkpointing or None,
    )
    if not is_recipe(options.name) and not (Path(options.name) / "recipe.json").is_file():
        if options.set:
            raise ValueError(
                f"--set changes a recipe, and {options.name} is a model; give a recipe file"
            )
        name, spec = named_spec(options.name)
        return workload_of_spec(name, spec, options.row_length, options.tokens), wishes
    from .. import recipe

    if options.row_length:
        raise ValueError("--row-length applies to models; for a recipe use --set batch.length=…")
    loaded = recipe.apply_overrides(
        recipe.load_recipe(options.name), list(options.set), report_on_first_rank
    )
    workload = workload_of_recipe(loaded, device.fastest_precision)
    rows = loaded.micro_batch_size
    sequences = None if rows is None else rows * loaded.task.sequences_per_row()
    wishes = wishes.with_defaults(loaded.parallel, loaded.activation_checkpointing, sequences)
    return with_samples(workload, options.tokens), wishes


def plans_by_devices(workload: "Workload", best: "Plan", wishes: "Wishes") -> list["Plan"]:
    """Return the fastest plans on fewer and on more devices, where one exists."""
    from ..plan.plan import search

    plans = []
    for scale in SCALES:
        devices = int(best.layout.devices * scale)
        fewer = replace(wishes, devices=devices, shard=None)
        fitting = best if scale == 1 else None
        if devices and fitting is None:
            fitting, _ = search(workload, best.device, fewer)
        plans += [fitting] if fitting is not None else []
    return plans


def scaling_row(plan: "Plan") -> dict[str, Any]:
    return {
        "devices": plan.layout.devices,
        "layout": vars(plan.layout),
        "memory_bytes": plan.memory.total,
        "seconds": plan.seconds,
        "model_flops_utilisation": plan.utilisation,
    }


def run_simulation(best: "Plan") -> dict[str, Any]:
    """Simulate one pass of rank 0 and compare its memory with the formula."""
    with spinner(f"simulating one of {best.layout.devices:,} ranks"):
        from ..plan.memory import peak_memory
        from ..plan.simulate import one_pass, simulate

        workload = one_pass(best.workload, best.layout)
        simulation = simulate(workload, best.layout)
    formula = peak_memory(workload, best.layout).total
    return vars(simulation) | {"formula": formula, "ratio": formula / simulation.memory}


# Printed page


def plan_page(best: "Plan", scaling: list["Plan"], plain: dict[str, Any]) -> "Page":
    from rich.console import Group
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for name, text in (*workload_rows(best), *device_rows(best), *cost_rows(best)):
        grid.add_row(name, text)
    if "simulation" in plain:
        for label, text in simulation_rows(plain["simulation"]):
            grid.add_row(label, text)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column in ("devices", "layout", "rows", "per device", "time", "of the peak"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for p in scaling:
        table.add_row(
            f"{p.layout.devices:,}",
            p.layout.describe(),
            f"{p.layout.micro_batch:,}*" if p.layout.checkpointing else f"{p.layout.micro_batch:,}",
            format_number(p.memory.total, "B"),
            format_duration(p.seconds),
            f"{p.utilisation:.0%}",
        )
    note = (
        "Each line is the fastest layout that fits; "
        "memory per device depends on its rows per forward pass"
    )
    note += " (--micro-batch-size)"
    if any(plan.layout.checkpointing for plan in scaling):
        note += "; *: with activation checkpointing"
    return Group(grid, "", table, "", f"{note}.")


def workload_rows(best: "Plan") -> list[tuple[str, str]]:
    w = best.workload
    flops = best.flops
    per = w.units_per_row
    unit = w.unit.removesuffix("s")
    samples = f"{format_number(w.samples_read)} {w.unit}"
    if w.unit == "tokens":
        samples += f", {w.samples_read / w.parameters:.3g} per parameter"
    rows = f"{w.rows:,} images" if w.unit == "images" else f"{w.rows:,} rows of {per:,} tokens"
    rows += f" ({w.length_reason})" if w.length_reason else ""
    return [
        ("model", f"{w.name}: {w.parameters:,} parameters"),
        (
            "FLOPs",
            f"{format_number(flops.forward / per)} forward and "
            f"{format_number(flops.backward / per)} backward per {unit}, "
            f"{flops.scores / flops.forward:.1%} for attention scores",
        ),
        ("data", f"{samples}: {w.steps:,} steps of {rows}; {w.precision}"),
        ("run", f"{format_number(best.step_flops * w.steps, 'FLOP')}"),
    ]


def device_rows(best: "Plan") -> list[tuple[str, str]]:
    layout = best.layout
    memory = best.memory
    device = best.device
    again = "; each block recomputed in the backward pass" if layout.checkpointing else ""
    passes = layout.micro_batches(best.workload)
    parts = [
        f"{format_number(size, 'B')} {name}"
        for name, size in vars(memory).items()
        if size >= 1e6 and name != "gradients"
    ]
    parts.insert(1, describe_gradients(best))
    return [
        ("devices", f"{layout.devices:,} × {device.name}: {layout.describe()}"),
        ("", f"{passes:,} × {layout.micro_batch:,} rows per device and step{again}"),
        (
            "memory",
            f"{format_number(memory.total, 'B')} of {format_number(device.memory, 'B')} per "
            f"device: {', '.join(parts)}",
        ),
    ]


def describe_gradients(best: "Plan") -> str:
    """Return the peak size of the gradients, and their size at the update if larger."""
    from ..plan.memory import moments_of_step

    here = best.memory.gradients
    later = moments_of_step(best.workload, best.layout)["update"].gradients
    note = f" ({format_number(later, 'B')} later, at the update)" if later > here else ""
    return f"{format_number(here, 'B')} gradients{note}"


def cost_rows(best: "Plan") -> list[tuple[str, str]]:
    sent = [
        f"{format_number(size, 'B')} {name} at {format_number(speed, 'B/s')}"
        for name, size, speed in (
            ("tensor", best.traffic.tensor, best.speed(best.layout.tensor)),
            ("shard", best.traffic.shard, best.speed(best.layout.tensor * best.layout.shard)),
            ("replicate", best.traffic.replicate, best.speed(best.layout.devices)),
        )
        if size
    ]
    device = best.device
    return [
        ("sent", f"{', '.join(sent) or 'nothing'} per device and step"),
        (
            "step",
            f"{best.step_seconds:.3g} s: {best.compute_seconds:.3g} s of matrix products at "
            f"{device.utilisation:.0%} of "
            f"{format_number(device.flops(best.workload.precision), 'FLOP/s')}, "
            f"{best.tensor_seconds:.3g} s waiting in tensor groups, "
            f"{best.shard_seconds:.3g} s of overlapped gathering",
        ),
        ("time", f"{format_duration(best.seconds)}; {best.utilisation:.1%} of the peak"),
    ]


def simulation_rows(simulation: dict[str, Any]) -> list[tuple[str, str]]:
    calls = ", ".join(f"{count:,} {name}" for name, count in simulation["collectives"].items())
    return [
        (
            "simulated",
            f"{format_number(simulation['memory'], 'B')} per rank for one pass; "
            f"formula: {format_number(simulation['formula'], 'B')} "
            f"({simulation['ratio']:.3f}); {simulation['seconds']:.0f} s",
        ),
        ("", calls),
    ]
