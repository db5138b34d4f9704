"""A user-defined stack: the recurrent encoder-decoder of examples/bahdanau.py."""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import weft
from tests import whole_runs
from weft import recipe as R
from weft.nn.layers.sequence import HiddenStates
from weft.nn.stack import StackLayer
from weft.support import registry
from weft.support.values import from_json

FILE = Path(__file__).parents[2] / "examples" / "bahdanau.py"
LENGTHS = (5, 3)


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The file as a module; what it registers leaves with it."""
    before = dict(registry.CHOICES), dict(registry.IMPLEMENTATIONS)
    module_spec = spec_from_file_location(FILE.stem, FILE)
    module = sys.modules[FILE.stem] = module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    yield module
    del sys.modules[FILE.stem]
    for table, rows in zip((registry.CHOICES, registry.IMPLEMENTATIONS), before, strict=True):
        table.clear()
        table.update(rows)


@pytest.fixture
def model(example: Any) -> weft.Model:
    return weft.build(example.bahdanau(width=8, vocab_size=20), dtype=torch.float64, seed=1).eval()


def gru(cell: Any, x_D: Tensor, state_D: Tensor, suffix: str = "") -> Tensor:
    """One step, gate by gate, as torch's documentation writes it."""
    weights = {name: getattr(cell, f"{name}{suffix}") for name in ("weight_ih", "weight_hh")}
    biases = {name: getattr(cell, f"{name}{suffix}") for name in ("bias_ih", "bias_hh")}
    inputs = (weights["weight_ih"] @ x_D + biases["bias_ih"]).chunk(3)
    states = (weights["weight_hh"] @ state_D + biases["bias_hh"]).chunk(3)
    reset, update = ((i + s).sigmoid() for i, s in zip(inputs[:2], states[:2], strict=True))
    fresh = (inputs[2] + reset * states[2]).tanh()
    return (1 - update) * fresh + update * state_D


def logits_of_row(model: weft.Model, source: list[int], target: list[int]) -> Tensor:
    """The slow twin: one row without padding, one vector at a time (appendix A.1 and A.2)."""
    table = model.token_embedding_VD
    d = model.decoder
    scale = model.spec.width**0.5
    xs = [table[i] * scale for i in source]
    half = model.spec.width // 2
    ways = []
    for suffix, order in (("_l0", xs), ("_l0_reverse", xs[::-1])):
        state = torch.zeros(half, dtype=table.dtype)
        states = []
        for x in order:
            state = gru(model.encoder.gru, x, state, suffix)
            states.append(state)
        ways.append(states)
    h = [torch.cat(both) for both in zip(ways[0], ways[1][::-1], strict=True)]
    state = (d.first.weight @ h[0][half:] + d.first.bias).tanh()
    rows = []
    for i in target:
        keys = [d.key.weight @ each + d.key.bias for each in h]
        scores = [d.score.weight[0] @ (d.query.weight @ state + key).tanh() for key in keys]
        weights = torch.stack(scores).softmax(0)
        context = sum(w * each for w, each in zip(weights, h, strict=True))
        y = table[i] * scale
        state = gru(d.cell, torch.cat((y, context)), state)
        wide = d.output.weight @ torch.cat((state, y, context)) + d.output.bias
        rows.append(table @ torch.maximum(wide[::2], wide[1::2]))
    return torch.stack(rows)


def test_padded_rows_equal_single_rows_computed_one_vector_at_a_time(model: weft.Model) -> None:
    source = torch.randint(1, 20, (2, 5))
    target = torch.randint(1, 20, (2, 4))
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    logits = model(source, target, attention_mask=mask)
    for i, length in enumerate(LENGTHS):
        expected = logits_of_row(model, source[i, :length].tolist(), target[i].tolist())
        torch.testing.assert_close(logits[i], expected, rtol=1e-9, atol=1e-9)


def test_counts_equal_what_is_built_and_what_torch_counts(example: Any) -> None:
    spec = example.bahdanau(width=12, vocab_size=20)
    model = weft.build(spec)
    assert spec.parameter_count() == sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(1, 7, dtype=torch.long), torch.ones(1, 5, dtype=torch.long))
    assert spec.flops(1, 7, 5) == counter.get_total_flops()
    assert from_json(spec.to_json()) == spec


def test_a_stack_that_states_no_flops_is_measured(example: Any) -> None:
    for stack, memory in ((example.BidirectionalGRU(), 0), (example.BahdanauDecoder(), 7)):
        assert weft.Stack.flops(stack, 12, 5, memory) == stack.flops(12, 5, memory) > 0


def test_blocks_of_a_stack_of_ones_own_are_counted_once() -> None:
    @weft.register
    class MappedStack(weft.Stack):
        """Blocks, and a map after them."""

    @weft.implements(MappedStack)
    class MappedLayer(StackLayer):
        def __init__(self, stack: MappedStack, width: int, layers: tuple[int, ...] = ()) -> None:
            super().__init__(stack, width, layers)
            self.map = nn.Linear(width, width)

        def forward(self, *inputs: Any) -> HiddenStates:  # type: ignore[override]
            sequence = super().forward(*inputs)
            return replace(sequence, x_BLD=self.map(sequence.x_BLD))

    try:
        plain = weft.bert(depth=2, width=16, heads=2, hidden=32, vocab_size=20, positions=8)
        mapped = replace(plain, encoder=MappedStack(blocks=plain.encoder.blocks))
        assert mapped.flops(1, 8) - plain.flops(1, 8) == 2 * 8 * 16 * 16
    finally:
        registry.CHOICES.pop("MappedStack")
        registry.IMPLEMENTATIONS.pop(MappedStack)


def test_it_trains_and_resumes_bit_for_bit_in_the_loop_of_every_model(
    example: Any, tmp_path: Path
) -> None:
    words = ("the loom", "a thread", "one warp", "two weavers")
    pairs = [{"source": f"{a} {b}", "target": f"{b} {a}"} for a in words for b in words]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    source = R.Source(paths=(str(tmp_path / "pairs.jsonl"),))
    recipe = R.Recipe(
        name="recurrent",
        model=example.bahdanau(width=16, vocab_size=120),
        task=R.Translation(),
        data=R.Data(
            rows=R.SourceTargetPairs(),
            train=source,
            valid=source,
            tokenizer=R.BPE(vocab_size=120),
            prepared_folder=str(tmp_path / "prepared"),
        ),
        batch=R.FixedBatch(size=8, length=32),
        steps=20,
        optimiser=R.Adam(lr=1e-2),
        checkpoints=R.Checkpoints(every_steps=5),
        threads=1,
    )
    losses = [step.loss for step in whole_runs.train(recipe, tmp_path / "whole")]
    assert losses[-1] < losses[0] - 1
    list(islice(whole_runs.train(recipe, tmp_path / "stopped"), 7))
    list(whole_runs.train(replace(recipe, eval_every=None), tmp_path / "stopped"))
    digests = {
        hashlib.sha256((tmp_path / name / "model" / "model.safetensors").read_bytes()).hexdigest()
        for name in ("whole", "stopped")
    }
    assert len(digests) == 1
