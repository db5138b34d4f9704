"""Parameter roles: declarations, defaults, and the check of undeclared ones."""

import pytest
import torch
from torch import Tensor, nn

import weft
from tests.references.test_start import SPECS
from weft import recipe as R
from weft.nn.block import BlockLayer
from weft.nn.initialisation import initialise_weights
from weft.nn.layers.roles import Part, Role, check_roles, parameter_facts, with_role, with_scope
from weft.tasks.masked_lm import NextSentenceHead
from weft.training.optimisers.optimiser import Optimiser


@pytest.mark.parametrize("name", SPECS)
def test_every_parameter_of_every_family_declares_its_role(name: str) -> None:
    model = weft.build(SPECS[name], device="meta")
    check_roles(model)
    facts = parameter_facts(model)
    assert set(facts) == set(model.state_dict())
    inside = {
        f"{path}.{own}"
        for path, part in model.named_modules()
        if isinstance(part, BlockLayer)
        for own in part.state_dict()
    }
    assert {found for found, own in facts.items() if own.inside_block} == inside
    assert {found for found, own in facts.items() if own.part is not Part.BODY} == {
        found for found in facts if found.split(".")[0] in ("head", "features")
    }
    joining = [found for found, own in facts.items() if own.writes_stream]
    assert {found.split(".")[-2] for found in joining} == {"out", "down"}
    assert all(facts[found].scaled_by_gain for found in joining)


def test_a_tasks_own_head_declares_its_role() -> None:
    check_roles(NextSentenceHead(8))


class Plain(nn.Module):
    """As a user writes it at first: nothing is declared."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(4))
        self.bias = nn.Parameter(torch.empty(4))
        self.mix = nn.Parameter(torch.empty(4, 4))
        self.linear = nn.Linear(4, 4)


def test_an_undeclared_module_gets_roles_by_shape_and_a_clear_error_from_the_check() -> None:
    outside = Plain()
    inside = with_scope(Plain(), inside_block=True)
    for module, matrix in ((outside, Role.HEAD), (inside, Role.MATRIX)):
        assert {name: facts.role for name, facts in parameter_facts(module).items()} == {
            "gain": Role.NORM,
            "bias": Role.BIAS,
            "mix": matrix,
            "linear.weight": matrix,
            "linear.bias": Role.BIAS,
        }
    with pytest.raises(
        ValueError, match=r"Plain \(the module itself\).* gain, bias, mix; use .*with_role"
    ):
        check_roles(outside)
    with_role(outside, Role.MATRIX)
    with_role(outside, Role.NORM, "gain")
    with pytest.raises(ValueError, match=r"Linear \(linear\).* weight, bias;"):
        check_roles(outside)
    with_role(outside.linear, Role.MATRIX)
    check_roles(outside)


def test_an_undeclared_module_is_initialised_and_trained() -> None:
    module = Plain()
    initialise_weights(module, SPECS["gpt2"], seed=3)
    assert module.gain.tolist() == [1.0] * 4
    assert module.bias.tolist() == module.linear.bias.tolist() == [0.0] * 4
    assert 0 < module.mix.std() < 0.1
    made = Optimiser(R.AdamW(lr=1e-2), module)
    decayed = {
        made.names[p]
        for group in made.optimisers[0].param_groups
        if group["weight_decay"]
        for p in group["params"]
    }
    assert decayed == {"mix", "linear.weight"}


def test_a_declared_constant_and_a_declared_formula_come_before_the_spec() -> None:
    def count(t: Tensor, generator: torch.Generator) -> None:
        t.copy_(torch.arange(t.numel()).view_as(t))

    module = Plain()
    with_role(module, Role.NORM, "gain", initial=0.5)
    with_role(module, Role.TABLE, "mix", formula=count)
    initialise_weights(module, SPECS["gpt2"])
    assert module.gain.tolist() == [0.5] * 4
    assert module.mix.flatten().tolist() == list(range(16))
