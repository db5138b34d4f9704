"""A recipe on a page before anything is built: model, task, data, batch, optimiser, schedule, cost."""
from typing import TYPE_CHECKING, Any

from . import cost, show
from . import recipe as R
from .say import clock, short
from .values import brief, to_plain

if TYPE_CHECKING:
    from rich.table import Table

SPEED = 1e12                               # FLOP/s that a time is stated for


def summary(recipe: R.Recipe) -> dict[str, Any]:
    flops, need, unit = cost.run_flops(recipe), cost.memory(recipe), cost.units(recipe)
    per_step = cost.rows(recipe) * (1 if unit == "images" else recipe.batch.length)
    return {"name": recipe.name, "parameters": recipe.model.parameters(), "flops": recipe.model.flops(length=show.length(recipe.model)),
            "length": show.length(recipe.model), "steps": recipe.steps, "rows": cost.rows(recipe), "units": unit,
            f"{unit}_per_step": per_step, unit: per_step * recipe.steps, "run_flops": flops, "memory_bytes": need.total,
            "state_bytes": need.state, "activation_bytes": need.row * need.rows, "rows_per_pass": need.rows,
            "checkpoint_bytes": cost.checkpoint_bytes(recipe, recipe.model.parameters()), "recipe": to_plain(recipe)}


def sources(data: R.Data) -> str:
    parts = [("train", data.train), ("valid", data.valid)]
    return "; ".join(f"{name} {', '.join(s.paths)}" + (f" ({s.part[0]:.0%} to {s.part[1]:.0%})" if s.part != (0.0, 1.0) else "")
                     for name, s in parts if s is not None) + ("" if data.valid else "; no validation data")


def page(recipe: R.Recipe) -> "Table":
    from rich.table import Table
    f, m, page = summary(recipe), recipe.model, Table.grid(padding=(0, 2))
    rows = [("recipe", recipe.name + (f": {recipe.paper}" if recipe.paper else "")),
            ("model", f"{f['parameters']:,} parameters, {short(f['flops'], 'FLOP')} forward for {show.workload(m)}")]
    rows += [("", f"{heading}: {'; '.join(lines)}") for heading, lines in show.equations(m)]
    rows += [("task", brief(recipe.objective) if not isinstance(recipe.objective, R.ReplacedTokens) else "ReplacedTokens")]
    rows += [("start", recipe.start)] if recipe.start else []
    rows += [("data", sources(recipe.data)), ("", f"rows: {brief(recipe.data.row)}; tokenizer: {brief(recipe.data.tokenizer)}"),
             ("batch", f"{brief(recipe.batch)}, " + (f"{recipe.micro} rows" if recipe.micro else "all rows") + " per forward pass")]
    rows += [("lengths", "; ".join(f"{length} tokens until {share:.0%} of the steps" for share,
                                   length in recipe.lengths))] * bool(recipe.lengths)
    rows += [("optimiser", f"{brief(recipe.optimiser)}, gradient norm at most {recipe.clip}"), ("schedule", brief(recipe.schedule)),
             ("steps",
              f"{f['steps']:,} of at most {f[f['units'] + '_per_step']:,} {f['units']}, {short(f[f['units']])} in all; {recipe.precision}")]
    rows += [(name, brief(own)) for name, own in (("trained", recipe.trained), ("average", recipe.average)) if own is not None]
    rows += [("validate", f"every {recipe.evaluate:,} steps" if recipe.evaluate else "at the end"),
             ("cost", f"{short(f['run_flops'], 'FLOP')}: {clock(f['run_flops'] / SPEED)} at 1 TFLOP/s"),
             ("memory", f"at least {short(f['memory_bytes'], 'B')}: {short(f['state_bytes'], 'B')} for weights, gradients and optimiser, "
                        f"{short(f['activation_bytes'], 'B')} for the activations of {f['rows_per_pass']:,} rows"),
             ("disk", f"{short(f['checkpoint_bytes'], 'B')} per checkpoint")]
    for name, text in rows:
        page.add_row(name, text)
    return page
