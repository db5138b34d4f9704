"""What cannot fit is refused before it is allocated; what may fit never is."""
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft import recipe as R
from weft import spec as S
from weft.cost import Memory, activations, memory, units
from weft.train.memory import MARGIN, available, group_room, refuse_what_cannot_fit

SHAPE: dict[str, Any] = {"depth": 3, "width": 64, "heads": 4, "hidden": 256, "vocabulary": 500}
DATA = R.Data(row=R.Documents(), train=R.Source(paths=("x",)))
GPT = R.Recipe(name="small", model=weft.gpt2(**SHAPE, positions=64), objective=R.NextToken(), data=DATA, batch=R.Rows(count=8, length=64),
               steps=1, optimiser=R.AdamW(rate=1e-3))
VIT = replace(GPT, model=weft.vit(depth=2, width=64, heads=4, hidden=128, image=32, patch=4, classes=10), objective=R.Classification(),
              batch=R.Rows(count=8, length=65), data=replace(DATA, row=R.Images()))


def kept(recipe: R.Recipe, inputs: torch.Tensor) -> int:
    """Bytes that one forward pass keeps for the backward pass, counted by torch: each storage once, parameters left out."""
    model = weft.build(recipe.model)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}

    def note(t: torch.Tensor) -> torch.Tensor:
        if t.untyped_storage().data_ptr() not in own:
            seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (held.append(t), note(t))[1], lambda t: t):  # type: ignore[func-returns-value]
        out = model(inputs)
    return sum(seen.values()) + out.untyped_storage().nbytes()


@pytest.mark.parametrize("recipe", [GPT, replace(GPT, model=weft.llama(**SHAPE, groups=2)), VIT,
                                    replace(VIT, model=weft.swin(depths=(2, 2), heads=(2, 4), width=32, image=32, patch=4, window=4,
                                                                 classes=10))],
                         ids=["gpt2", "llama", "vit", "swin"])
def test_the_estimate_is_below_what_torch_keeps_and_not_by_much(recipe: R.Recipe) -> None:
    inputs = torch.zeros(8, 64, dtype=torch.long) if units(recipe) == "tokens" else torch.zeros(8, 3, 32, 32)
    found, guess = kept(recipe, inputs), 8 * activations(recipe, recipe.model)
    assert 0.3 * found < guess < 1.1 * found


def test_an_absurd_batch_is_refused_with_the_estimate_the_room_and_the_way_out() -> None:
    absurd = replace(GPT, batch=R.Rows(count=100_000, length=64))
    need, free = memory(absurd), 4 * 10 ** 9
    with pytest.raises(ValueError,
                       match=r"needs about [\d.]+ GB of memory, and 4\.0 GB are free: .* 100,000 rows .* give --set micro=\d+") as error:
        refuse_what_cannot_fit(absurd, need, free)
    micro = int(str(error.value).rpartition("=")[2])
    assert micro & (micro - 1) == 0
    fit = memory(replace(absurd, micro=micro))
    assert fit.total <= free < memory(replace(absurd, micro=4 * micro)).total
    refuse_what_cannot_fit(absurd, fit, free)


@pytest.mark.parametrize(("need", "way"), [(Memory(9, 0, 1, 1), "a smaller model"), (Memory(1, 9, 1, 1),
                                                                                     "fewer rows per step, with --set batch.count="),
                                           (Memory(1, 1, 9, 1), "shorter rows, with --set batch.length="), (Memory(1, 1, 1, 9),
                                                                                                            "--set micro=2")])
def test_the_way_out_is_one_that_helps(need: Memory, way: str) -> None:
    with pytest.raises(ValueError, match=f"give {way}"):
        refuse_what_cannot_fit(GPT, need, 5 if way != "--set micro=2" else 4)


def test_what_may_fit_is_tried() -> None:
    refuse_what_cannot_fit(GPT, Memory(0, 0, 1, int(MARGIN * 1000)), 1000)
    for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.py")):
        recipe = R.read(str(path))
        refuse_what_cannot_fit(recipe, memory(recipe), 10 ** 9)


def test_ranks_share_the_machine_and_a_container_has_a_limit(tmp_path: Path) -> None:
    here = available(torch.device("cpu"))
    assert here > 10 ** 8
    assert available(torch.device("cpu"), 4) < 0.5 * here
    assert group_room(tmp_path) == []
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 300\nfile 600\n")
    assert group_room(tmp_path) == [700]
    (tmp_path / "memory.max").write_text("max\n")
    assert group_room(tmp_path) == []


def test_fewer_numbers_are_kept_where_fewer_are_needed() -> None:
    whole = memory(GPT)
    assert memory(replace(GPT, recompute=True)).row < 0.6 * whole.row
    assert memory(replace(GPT, precision="bf16")).row == whole.row // 2
    assert memory(GPT, ranks=4).rows == 2
    assert memory(replace(GPT, optimiser=R.SGD(rate=1.0))).state == pytest.approx(0.75 * whole.state)
    assert memory(replace(GPT, average=R.Moving())).state == pytest.approx(1.25 * whole.state)
    assert isinstance(GPT.model.decoder, S.Stack)
