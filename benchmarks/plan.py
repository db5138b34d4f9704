"""Is a plan true? Published costs, real steps on this machine, and simulated ranks, each beside the
closed formulas.

    python -m benchmarks.plan [--rounds 8] [--simulate] [--receipt FILE]

`published`: FLOPs of runs whose papers print them; the formula's over theirs, and the reason for
what is left. `measured`: whole steps (forward, loss, backward, fused AdamW, zero_grad) of four
small models in fp32 without dropout, one thread. The predicted time is the sum of the times of
their kernels (each linear map, norm, activation, attention, sum, cross entropy and update, measured
alone at its shape, forward and backward), which alternate with the steps; times are the best of all
rounds. Memory is the bytes of tensors at the fullest moment of a step, as torch's MemTracker counts
them. `simulated` (with --simulate, minutes): one rank of GPT-3 175B on 1,024 and of PaLM 540B on
6,144, each in a process of its own. `scaling`: GPT-3 13B with the same rows per device on 8 to
16,384. The last line is JSON.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft import recipe as R
from weft import spec as S
from weft.nn.kernels.cross_entropy import cross_entropy
from weft.nn.layers.activations import ACTIVATIONS
from weft.nn.layers.norms import build_norm
from weft.plan.activations import storage_of
from weft.plan.hardware import accelerator
from weft.plan.layout import Layout
from weft.plan.memory import peak_memory
from weft.plan.plan import make_plan
from weft.plan.recipe_workload import Workload, input_tokens, row_flops
from weft.plan.simulate import RankMemory, create_moments, one_pass, simulate
from weft.plan.workload import workload_of_spec
from weft.spec.attention import head_dims
from weft.spec.count import block_shapes, iterate_blocks
from weft.tasks.base import EncoderDecoderLoss, Loss, TaskContext, encode_batch, logits_at
from weft.tasks.causal_lm import CausalLMLoss
from weft.training.memory import keep_large_allocations

from . import command, receipt

# Published costs

# seconds: arXiv:1706.03762, section 5.2
P100_STEPS = {
    "base": (100_000, 0.4),
    "big": (300_000, 1.0),
}
TRANSLATION = {"length": 25, "rows": 1000}  # sentences of 25,000 source and 25,000 target tokens
# arXiv:2010.11929, section 4.1
JFT_IMAGES = 303e6
JFT_CLASSES = 18_291


def published() -> dict[str, dict[str, Any]]:
    return {
        **transformer_costs(),
        "gpt3-175b": compared(
            3.14e23,  # arXiv:2005.14165, table D.1
            flops_of(workload_of_spec("gpt3", weft.gpt3("175b"), tokens=300e9)),
            "the paper counts 6 per parameter and token, without attention scores",
        ),
        "bert-base": bert_cost(),
        **{f"vit-{name}": vit_cost(*arguments) for name, arguments in VIT.items()},
    }


def compared(theirs: float, ours: float, reason: str) -> dict[str, Any]:
    return {"published": theirs, "ours": ours, "ratio": ours / theirs, "reason": reason}


def flops_of(workload: Workload) -> float:
    return row_flops(workload).training * workload.rows * workload.steps


def transformer_costs() -> dict[str, dict[str, Any]]:
    """The paper multiplies time by 8 devices and their sustained rate, whatever they computed; so
    do we, with its seconds per step.
    """
    device = accelerator("p100")
    found = {}
    for size, theirs in (("base", 3.3e18), ("big", 2.3e19)):
        (steps, seconds) = P100_STEPS[size]
        length = TRANSLATION["length"]
        spec = weft.transformer(size)
        workload = Workload(size, spec, TRANSLATION["rows"], length, steps, length)
        spent = steps * seconds * 8 * device.fp32_flops
        needed = flops_of(workload)
        reason = (
            f"seconds × devices × rate; the model needs {needed:.2e}, {needed / spent:.0%} of it"
        )
        found[f"transformer-{size}"] = compared(theirs, spent, reason)
    return found


def bert_cost() -> dict[str, Any]:
    """A million steps of 256 rows of 512; ELECTRA's authors count a backward pass as one forward
    pass and lookups as products.
    """
    spec = weft.bert("base")
    workload = Workload("bert", spec, 256, 512, 1_000_000, scored=0.15)
    forward = row_flops(workload).forward + 512 * 2 * spec.vocab_size * spec.width
    # arXiv:2003.10555, table 1
    theirs = 6.4e19
    ours = 2 * forward * workload.rows * workload.steps
    reason = (
        f"by ELECTRA's rules; by ours, backward twice and lookups free, {flops_of(workload):.2e}"
    )
    return compared(theirs, ours, reason)


# size, patch, epochs of JFT-300M, exaFLOPs: arXiv:2010.11929, table 6
VIT = {
    "base-32": ("base", 32, 7, 55),
    "base-16": ("base", 16, 7, 224),
    "large-16": ("large", 16, 7, 783),
    "huge-14": ("huge", 14, 14, 4262),
}


def vit_cost(size: str, patch: int, epochs: int, exaflops: float) -> dict[str, Any]:
    spec = weft.vit(size, patch_size=patch, classes=JFT_CLASSES)
    workload = Workload("vit", spec, 1, 224, round(epochs * JFT_IMAGES), unit="images")
    return compared(exaflops * 1e18, flops_of(workload), "the head's hidden layer in pre-training")


# Real steps


class Model(NamedTuple):
    workload: Workload
    module: nn.Module
    step_loss: Callable[[], Tensor]
    fused: bool = True  # attention that stores no weights


def models() -> dict[str, Callable[[], Model]]:
    return {"gpt2-6x384": gpt2, "bert-mini": bert, "t5-tiny": t5, "vit-tiny": vit}


def ids(rows: int, length: int, size: int) -> Tensor:
    return torch.randint(5, size, (rows, length), generator=torch.Generator().manual_seed(0))


def language_model(loss: Loss, batch: dict[str, Tensor]) -> Callable[[], Tensor]:
    count = batch["labels"].numel()
    return lambda: loss(batch)["token"] / count


def gpt2() -> Model:
    spec = S.with_dropout(weft.gpt2(depth=6, width=384, heads=6, vocab_size=8192, positions=256), 0)
    workload = Workload("gpt2", spec, 8, 256, 1, precision="fp32")
    loss = CausalLMLoss(R.CausalLM(), TaskContext(spec, None))  # type: ignore[arg-type]
    tokens = ids(8, 256, 8192)
    batch = {"tokens": tokens, "labels": tokens, "labels_at": torch.arange(tokens.numel())}
    return Model(workload, loss, language_model(loss, batch))


def bert() -> Model:
    spec = S.with_dropout(weft.bert("mini"), 0)
    workload = Workload("bert", spec, 16, 128, 1, scored=0.15, precision="fp32")
    model = weft.build(spec)
    tokens = ids(16, 128, 30522)
    at = torch.arange(0, tokens.numel())[: round(0.15 * tokens.numel())]

    def step_loss() -> Tensor:
        logits = logits_at(model, encode_batch(model, {"tokens": tokens}), at)
        return cross_entropy(logits, tokens.flatten()[at]) / len(at)

    return Model(workload, model, step_loss)


def t5() -> Model:
    spec = weft.t5(depth=4, width=256, heads=4, hidden=1024, head_dim=64, vocab_size=8192)
    spec = S.with_dropout(spec, 0)
    workload = Workload("t5", spec, 16, 128, 1, 64, precision="fp32")
    loss = EncoderDecoderLoss(R.TextToText(), TaskContext(spec, None))  # type: ignore[arg-type]
    tokens = ids(16, 128, 8192)
    target = ids(16, 64, 8192)
    at = torch.arange(target.numel())
    batch = {"tokens": tokens, "target": target, "labels": target, "labels_at": at}
    return Model(workload, loss, language_model(loss, batch), fused=False)


def vit() -> Model:
    spec = weft.vit(
        depth=12, width=192, heads=3, hidden=768, image_size=224, patch_size=16, classes=1000
    )
    spec = S.with_dropout(spec, 0)
    workload = Workload("vit", spec, 8, 224, 1, precision="fp32", unit="images")
    model = weft.build(spec)
    image = torch.randn(8, 3, 224, 224)
    label = torch.arange(8)
    return Model(workload, model, lambda: F.cross_entropy(model(image), label))


Kernel = Callable[[], object]


def kernels(model: Model) -> dict[str, tuple[int, Kernel]]:
    """Every kernel of a step: how often, and one call of it forward and backward."""
    counts: Counter[str] = Counter()
    calls: dict[str, Kernel] = {}

    def add(name: str, make: Callable[[], Kernel], times: int = 1) -> None:
        counts[name] += times
        if name not in calls:
            calls[name] = make()

    w = model.workload
    tokens = input_tokens(w.spec, w)
    for placed in iterate_blocks(w.spec):
        width = placed.width
        block = placed.block
        queries = w.rows * tokens.read_by(w.spec, placed)
        for name in ("attention", "cross_attention", "feedforward"):
            branch = getattr(block, name, None)
            if branch is None:
                continue
            add_branch(add, branch, name, (width, queries, w, tokens.visible), model.fused)
        for name, shape in block_shapes(block, width):
            if len(shape) == 2 and ".inner." in name and "bias" not in name:
                reads_memory = "cross" in name and (".key." in name or ".value." in name)
                rows = w.rows * tokens.visible if reads_memory else queries
                add(f"linear {rows} {shape}", partial(linear, rows, shape))
    add_ends(add, model, tokens.visible, tokens.target)
    return {name: (counts[name], calls[name]) for name in calls}


def add_branch(add: Any, branch: S.Branch, name: str, sizes: Any, fused: bool) -> None:
    width, queries, w, tokens = sizes
    for norm in (branch.before, branch.out, branch.after):
        if norm is not None:
            add(f"norm {queries} {width}", lambda n=norm: normalise(n, queries, width))
    # The sum forward; backward, the gradient of what several maps read: residual, queries, keys and
    # values.
    inner = branch.inner
    sums = 4 if isinstance(inner, S.Attention) else 2
    add(f"sum {queries} {width}", lambda: residual_sum(queries, width), sums)
    if isinstance(inner, S.Attention):
        length = queries // w.rows
        keys = tokens if name == "cross_attention" else length
        causal = isinstance(inner.pattern, S.CausalAttention)
        bias = not fused and name == "attention"
        add(
            f"attention {queries} {keys} {causal} {bias}",
            lambda: attend(inner, width, (w.rows, length, keys), causal, bias),
        )
    else:
        add(
            f"activation {queries} {inner.hidden}",  # type: ignore[attr-defined]
            lambda: activate(inner.activation, queries, inner.hidden),  # type: ignore[attr-defined]
        )


def add_ends(add: Any, model: Model, tokens: int, targets: int) -> None:
    w = model.workload
    spec = model.workload.spec
    read = w.rows * (targets if spec.decoder is not None else tokens)
    for stack in (spec.encoder, spec.decoder):
        if stack is not None and stack.norm is not None:
            add(f"norm {read} {spec.width}", lambda s=stack: normalise(s.norm, read, spec.width))
    if isinstance(spec.head, S.LMHead):
        scored = round(read * w.scored)
        shape = (spec.vocab_size, spec.width)
        add(f"linear {scored} {shape}", lambda: linear(scored, shape))
        add("cross entropy", lambda: entropy(scored, spec.vocab_size))
        if spec.head.tied:
            add("tied gradient", lambda: residual_sum(*shape))
        if spec.head.transform is not None:
            add(f"linear {scored} {spec.width}", lambda: linear(scored, (spec.width,) * 2))
    else:
        pixels = (spec.width, spec.patch_pixels)
        add("patches", lambda: linear(w.rows * tokens, pixels, gradient=False))
    for name, size in (("source", tokens), ("target", targets)):
        if isinstance(getattr(spec, name), S.Tokens | S.SharedTokens):
            if getattr(spec, name).norm is not None:
                norm = getattr(spec, name).norm
                add("embedding norm", lambda n=norm: normalise(n, w.rows * tokens, spec.width))
            add(f"embedding {name}", lambda n=size: lookup(w.rows * n, spec.vocab_size, spec.width))
    add("update", lambda: update(model.module))


def forward_backward(function: Callable[[], Tensor], *leaves: Tensor) -> Kernel:
    gradient = torch.randn_like(function())

    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        function().backward(gradient)

    return call


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def linear(rows: int, shape: tuple[int, ...], gradient: bool = True) -> Kernel:
    layer = nn.Linear(shape[1], shape[0])
    x = torch.randn(rows, shape[1], requires_grad=gradient)
    return forward_backward(lambda: layer(x), x, *layer.parameters())


def normalise(norm: S.Norm, rows: int, width: int) -> Kernel:
    layer = build_norm(norm, width)
    x = leaf(rows, width)
    nn.init.ones_(layer.weight)  # type: ignore[arg-type]
    return forward_backward(lambda: layer(x), x, *layer.parameters())


def residual_sum(rows: int, width: int) -> Kernel:
    x = leaf(rows, width)
    y = leaf(rows, width)
    return forward_backward(lambda: x + y, x, y)


def activate(name: str, rows: int, hidden: int) -> Kernel:
    x = leaf(rows, hidden)
    return forward_backward(lambda: ACTIVATIONS[name](x), x)


def attend(a: S.Attention, width: int, sizes: Any, causal: bool, bias: bool) -> Kernel:
    rows, length, keys = sizes
    key_dim, value_dim, groups = head_dims(a, width)
    q, k, v = (
        leaf(rows, n, heads, dim).transpose(1, 2).detach().requires_grad_()
        for n, heads, dim in (
            (length, a.heads, key_dim),
            (keys, groups, key_dim),
            (keys, groups, value_dim),
        )
    )
    mask = leaf(1, a.heads, length, keys) if bias else None
    leaves = [q, k, v, *([mask] if mask is not None else [])]
    return forward_backward(
        lambda: F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=a.scale
        ),
        *leaves,
    )


def entropy(rows: int, size: int) -> Kernel:
    x = leaf(rows, size)
    label = torch.zeros(rows, dtype=torch.long)
    return forward_backward(lambda: cross_entropy(x, label), x)


def lookup(rows: int, size: int, width: int) -> Kernel:
    table = leaf(size, width)
    tokens = ids(1, rows, size)[0]
    return forward_backward(lambda: F.embedding(tokens, table), table)


def update(module: nn.Module) -> Kernel:
    """Of copies of the parameters, all at once as in a step."""
    parameters = [nn.Parameter(torch.randn_like(p)) for p in module.parameters()]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return torch.optim.AdamW(parameters, fused=True).step


def measured(rounds: int) -> dict[str, dict[str, Any]]:
    return {name: measure(make(), rounds) for name, make in models().items()}


def measure(model: Model, rounds: int) -> dict[str, Any]:
    optimizer = torch.optim.AdamW(model.module.parameters(), fused=True)
    model.module.train()

    def step() -> None:
        model.step_loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    create_moments(optimizer)
    tensors = tensor_peak(model, optimizer, step)
    parts = kernels(model)
    best = dict.fromkeys(parts, float("inf"))
    real = float("inf")
    with keep_large_allocations():  # as in training
        for _ in range(rounds):
            real = min(real, seconds_of(step))
            for name, (_, call) in parts.items():
                best[name] = min(best[name], seconds_of(call))
    predicted = sum(count * best[name] for name, (count, _) in parts.items())
    layout = Layout(micro_batch=model.workload.rows)
    storage = storage_of(model.workload, layout, model.fused)
    formula = peak_memory(model.workload, layout, storage).total
    flops = row_flops(model.workload).training * model.workload.rows
    return {
        "seconds": real,
        "predicted_seconds": predicted,
        "time_ratio": predicted / real,
        "bytes": tensors,
        "predicted_bytes": formula,
        "memory_ratio": formula / tensors,
        "gflops_per_second": flops / real / 1e9,
    }


def seconds_of(call: Kernel) -> float:
    """Of the processor, with one thread: other programs do not count."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def tensor_peak(model: Model, optimizer: torch.optim.Optimizer, step: Kernel) -> float:
    tracker = RankMemory()
    tracker.track_external(model.module, optimizer)
    with tracker:
        step()
    return float(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


# Many ranks

SIMULATED = {
    "gpt3-175b": Layout(tensor=8, shard=128, checkpointing=True),
    "palm-540b": Layout(tensor=8, shard=768, checkpointing=True),
}


def simulate_one(name: str) -> dict[str, Any]:
    family, _, size = name.partition("-")
    layout = SIMULATED[name]
    workload = one_pass(workload_of_spec(name, getattr(weft, family)(size)), layout)
    begin = time.process_time()
    simulation = simulate(workload, layout)
    formula = peak_memory(workload, layout)
    return {
        "ranks": layout.devices,
        "layout": layout.describe(),
        "bytes": simulation.memory,
        "predicted_bytes": formula.total,
        "memory_ratio": formula.total / simulation.memory,
        "collectives": simulation.collectives,
        "received_bytes": simulation.received,
        "seconds": simulation.seconds,
        "processor_seconds": time.process_time() - begin,
        "process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def simulated() -> dict[str, dict[str, Any]]:
    """Each in a process of its own, whose memory is then its own."""
    found = {}
    for name in SIMULATED:
        words = [sys.executable, "-W", "ignore", "-m", "benchmarks.plan", "--only", name]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def scaling() -> list[dict[str, Any]]:
    """Weak scaling: two rows per reader in tensor groups of eight, whatever their number."""
    device = accelerator("h100")
    base = workload_of_spec("gpt3-13b", weft.gpt3("13b"))
    table = []
    for devices in (8 << i for i in range(12)):
        layout = Layout(tensor=8, shard=devices // 8, micro_batch=2, checkpointing=True)
        workload = replace(base, rows=2 * layout.readers, any_rows=False)
        plan = make_plan(workload, device, layout)
        tokens = workload.rows * workload.units_per_row / plan.step_seconds
        table.append(
            {
                "devices": devices,
                "layout": layout.describe(),
                "bytes": plan.memory.total,
                "step_seconds": plan.step_seconds,
                "tokens_per_second": tokens,
                "model_flops_utilisation": plan.utilisation,
            }
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="rounds of measurement (default: 8)")
    parser.add_argument("--simulate", action="store_true", help="simulate the large models too")
    parser.add_argument("--only", choices=SIMULATED, help="simulate one model and nothing else")
    parser.add_argument("--receipt", metavar="FILE", help="write the result and how it came about")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(simulate_one(args.only)))
        return
    torch.set_num_threads(1)
    begin = time.perf_counter()
    found: dict[str, Any] = {
        "published": published(),
        "measured": measured(args.rounds),
        "scaling": scaling(),
    }
    if args.simulate:
        found["simulated"] = simulated()
    for kind in ("published", "measured", "simulated"):
        for name, row in found.get(kind, {}).items():
            ratios = {key: round(value, 3) for key, value in row.items() if "ratio" in key}
            print(f"{kind:10} {name:18} {ratios}")
    if args.receipt:
        receipt.write(args.receipt, found, time.perf_counter() - begin)
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
