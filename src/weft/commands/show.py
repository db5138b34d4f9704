"""The command `weft show`: a model, or a recipe with its task, data, optimiser, schedule and
cost."""

from typing import Any

from rich.console import Group
from rich.table import Table

from .. import recipe as R
from .. import spec as S
from ..plan.cost import checkpoint_bytes, estimate_memory, run_flops
from ..plan.recipe_workload import image_side
from ..recipe.recipe import sample_unit
from ..spec.describe import (
    default_length,
    describe_workload,
    model_tree,
    short,
    stack_equations,
    tree_rows,
)
from ..support.console import format_duration, format_number
from ..support.value_tree import format_inline
from ..support.values import to_plain
from .tables import plain_table

# FLOP/s for the stated time
REFERENCE_FLOPS = 1e12


def recipe_summary(recipe: R.Recipe) -> dict[str, Any]:
    flops = run_flops(recipe)
    memory = estimate_memory(recipe)
    unit = sample_unit(recipe.model)
    rows = recipe.batch.rows_per_step()
    per_step = rows if unit == "images" else rows * recipe.batch.length
    length = image_side(recipe.model, recipe.batch.length) or default_length(recipe.model)
    parameters = recipe.model.parameter_count()
    return {
        "name": recipe.name,
        "parameters": parameters,
        "flops": recipe.model.flops(length=length),
        "length": length,
        "steps": recipe.steps,
        "rows_per_step": rows,
        "unit": unit,
        f"{unit}_per_step": per_step,
        unit: per_step * recipe.steps,
        "run_flops": flops,
        "memory_bytes": memory.total,
        "state_bytes": memory.state_bytes,
        "activation_bytes": memory.activations_per_row * memory.rows,
        "rows_per_forward": memory.rows,
        "checkpoint_bytes": checkpoint_bytes(recipe.optimiser, recipe.average, parameters),
        "recipe": to_plain(recipe),
    }


def describe_sources(data: R.Data) -> str:
    parts = []
    for name, source, _ in data.parts():
        begin, end = source.fraction
        share = f" ({begin:.0%} to {end:.0%})" if (begin, end) != (0.0, 1.0) else ""
        parts.append(f"{name} {', '.join(source.paths)}{share}")
    if not data.valid:
        parts.append("no validation data")
    return "; ".join(parts)


def recipe_page(recipe: R.Recipe, summary: dict[str, Any]) -> Table:
    page = Table.grid(padding=(0, 2))
    for name, text in [*part_rows(recipe, summary), *cost_rows(recipe, summary)]:
        page.add_row(name, text)
    return page


def part_rows(recipe: R.Recipe, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the parts of a recipe."""
    model = recipe.model
    flops = format_number(summary["flops"], "FLOP")
    workload = describe_workload(model, summary["length"])
    # A spec does not fit on one line
    whole = not recipe.task.extra_models()
    data = recipe.data
    per_pass = f"{recipe.micro_batch_size} rows" if recipe.micro_batch_size else "all rows"
    rows = [
        ("recipe", f"{recipe.name}: {recipe.paper}" if recipe.paper else recipe.name),
        ("model", f"{summary['parameters']:,} parameters, {flops} forward for {workload}"),
    ]
    rows += [("", f"{heading}: {'; '.join(lines)}") for heading, lines in stack_equations(model)]
    rows.append(("task", format_inline(recipe.task) if whole else type(recipe.task).__name__))
    if recipe.init_from:
        rows.append(("init_from", recipe.init_from))
    rows += [
        ("data", describe_sources(data)),
        ("", f"rows: {format_inline(data.rows)}; tokenizer: {format_inline(data.tokenizer)}"),
        ("batch", f"{format_inline(recipe.batch)}, {per_pass} per forward pass"),
    ]
    if recipe.length_schedule:
        phases = [
            f"{length} tokens up to {share:.0%} of the steps"
            for share, length in recipe.length_schedule
        ]
        rows.append(("length_schedule", "; ".join(phases)))
    optimiser = format_inline(recipe.optimiser)
    rows += [
        ("optimiser", f"{optimiser}, gradient norm at most {recipe.grad_clip}"),
        ("schedule", format_inline(recipe.schedule)),
    ]
    optional = (("trainable", recipe.trainable), ("average", recipe.average))
    rows += [(name, format_inline(value)) for name, value in optional if value is not None]
    return rows


def cost_rows(recipe: R.Recipe, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the duration of a run and its resources."""
    unit = summary["unit"]
    per_step = summary[f"{unit}_per_step"]
    total = format_number(summary[unit])
    flops = summary["run_flops"]
    state = format_number(summary["state_bytes"], "B")
    activations = format_number(summary["activation_bytes"], "B")
    return [
        (
            "steps",
            f"{summary['steps']:,} of at most {per_step:,} {unit}, {total} in total; "
            f"{recipe.precision}",
        ),
        ("validate", f"every {recipe.eval_every:,} steps" if recipe.eval_every else "at the end"),
        (
            "cost",
            f"{format_number(flops, 'FLOP')}: "
            f"{format_duration(flops / REFERENCE_FLOPS)} at 1 TFLOP/s",
        ),
        (
            "memory",
            f"at least {format_number(summary['memory_bytes'], 'B')}: {state} for weights, "
            "gradients and optimiser, "
            f"{activations} for the activations of {summary['rows_per_forward']:,} rows",
        ),
        ("disk", f"{format_number(summary['checkpoint_bytes'], 'B')} per checkpoint"),
    ]


def model_page(name: str, spec: S.Spec, width: int) -> Group:
    """Return the parts, equations and cost of a model as text."""
    equations = ""
    for heading, block in stack_equations(spec):
        equations += f"\n{heading}\n" + "".join(f"  {line}\n" for line in block)
    flops = short(spec.flops(length=default_length(spec)), " KMGTPE", " ")
    cost = (
        f"{spec.parameter_count():,} parameters, {flops}FLOPs forward for {describe_workload(spec)}"
    )
    parts = list(tree_rows(model_tree(name, spec)))
    return Group(
        plain_table("part", "what", "parameters", rows=parts, width=width), equations, cost
    )
