"""`weft show`: a model, or a recipe with its model, task, data, batch, optimiser, schedule and cost."""

from typing import TYPE_CHECKING, Any

from .. import recipe as R
from .. import spec as S
from ..console import format_duration, format_number
from ..recipe import cost as cost_module
from ..recipe import recipe as recipe_module
from ..recipe.cost import checkpoint_bytes, run_flops
from ..recipe.workload import image_side
from ..spec import describe
from ..spec.describe import (
    default_length,
    describe_workload,
    model_tree,
    stack_equations,
    tree_rows,
)
from ..spec.describe import short as short_describe
from ..values import format_inline, to_plain
from .tables import plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType as Page
    from rich.table import Table

REFERENCE_FLOPS = 1e12  # FLOP/s that a time is stated for


def recipe_summary(recipe: R.Recipe) -> dict[str, Any]:
    flops, need, unit = (
        run_flops(recipe),
        cost_module.estimate_memory(recipe),
        recipe_module.sample_unit(recipe.model),
    )
    per_step = recipe.batch.rows_per_step() * (1 if unit == "images" else recipe.batch.length)
    length = image_side(recipe.model, recipe.batch.length) or default_length(recipe.model)
    return {
        "name": recipe.name,
        "parameters": recipe.model.parameter_count(),
        "flops": recipe.model.flops(length=length),
        "length": length,
        "steps": recipe.steps,
        "rows_per_step": recipe.batch.rows_per_step(),
        "unit": unit,
        f"{unit}_per_step": per_step,
        unit: per_step * recipe.steps,
        "run_flops": flops,
        "memory_bytes": need.total,
        "state_bytes": need.state_bytes,
        "activation_bytes": need.activations_per_row * need.rows,
        "rows_per_forward": need.rows,
        "checkpoint_bytes": checkpoint_bytes(
            recipe.optimiser, recipe.average, recipe.model.parameter_count()
        ),
        "recipe": to_plain(recipe),
    }


def describe_sources(data: R.Data) -> str:
    return "; ".join(
        f"{name} {', '.join(s.paths)}"
        + (f" ({s.fraction[0]:.0%} to {s.fraction[1]:.0%})" if s.fraction != (0.0, 1.0) else "")
        for name, s, _ in data.parts()
    ) + ("" if data.valid else "; no validation data")


def recipe_page(recipe: R.Recipe) -> "Table":
    from rich.table import Table

    f, m, page = recipe_summary(recipe), recipe.model, Table.grid(padding=(0, 2))
    rows = [
        ("recipe", recipe.name + (f": {recipe.paper}" if recipe.paper else "")),
        (
            "model",
            f"{f['parameters']:,} parameters, {format_number(f['flops'], 'FLOP')} forward for {describe_workload(m, f['length'])}",
        ),
    ]
    rows += [
        ("", f"{heading}: {'; '.join(lines)}") for heading, lines in describe.stack_equations(m)
    ]
    task = recipe.task
    whole = not task.extra_models()  # a model's spec does not fit on a line
    rows += [("task", format_inline(task) if whole else type(task).__name__)]
    rows += [("init_from", recipe.init_from)] if recipe.init_from else []
    rows += [
        ("data", describe_sources(recipe.data)),
        (
            "",
            f"rows: {format_inline(recipe.data.rows)}; tokenizer: {format_inline(recipe.data.tokenizer)}",
        ),
        (
            "batch",
            f"{format_inline(recipe.batch)}, "
            + (f"{recipe.micro_batch_size} rows" if recipe.micro_batch_size else "all rows")
            + " per forward pass",
        ),
    ]
    rows += [
        (
            "length_schedule",
            "; ".join(
                f"{length} tokens until {share:.0%} of the steps"
                for share, length in recipe.length_schedule
            ),
        )
    ] * bool(recipe.length_schedule)
    rows += [
        (
            "optimiser",
            f"{format_inline(recipe.optimiser)}, gradient norm at most {recipe.grad_clip}",
        ),
        ("schedule", format_inline(recipe.schedule)),
        (
            "steps",
            f"{f['steps']:,} of at most {f[f['unit'] + '_per_step']:,} {f['unit']}, {format_number(f[f['unit']])} in total; {recipe.precision}",
        ),
    ]
    rows += [
        (name, format_inline(value))
        for name, value in (("trainable", recipe.trainable), ("average", recipe.average))
        if value is not None
    ]
    rows += [
        ("validate", f"every {recipe.eval_every:,} steps" if recipe.eval_every else "at the end"),
        (
            "cost",
            f"{format_number(f['run_flops'], 'FLOP')}: {format_duration(f['run_flops'] / REFERENCE_FLOPS)} at 1 TFLOP/s",
        ),
        (
            "memory",
            f"at least {format_number(f['memory_bytes'], 'B')}: {format_number(f['state_bytes'], 'B')} for weights, gradients and optimiser, "
            f"{format_number(f['activation_bytes'], 'B')} for the activations of {f['rows_per_forward']:,} rows",
        ),
        ("disk", f"{format_number(f['checkpoint_bytes'], 'B')} per checkpoint"),
    ]
    for name, text in rows:
        page.add_row(name, text)
    return page


def model_page(name: str, spec: S.Spec, width: int) -> "Page":
    """Return the parts, equations and cost of a model as text."""
    from rich.console import Group

    equations_text = "".join(
        f"\n{heading}\n" + "".join(f"  {line}\n" for line in block)
        for heading, block in stack_equations(spec)
    )
    cost = f"{spec.parameter_count():,} parameters, {short_describe(spec.flops(length=default_length(spec)), ' KMGTPE', ' ')}FLOPs forward for {describe_workload(spec)}"
    return Group(
        plain_table(
            "part", "what", "parameters", rows=list(tree_rows(model_tree(name, spec))), width=width
        ),
        equations_text,
        cost,
    )
