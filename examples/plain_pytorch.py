"""A Weft model in a plain PyTorch loop: a DataLoader, a torch optimiser, nothing else of Weft.

python examples/plain_pytorch.py
"""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import weft


def main(steps: int = 60) -> list[float]:
    """Train a small GPT-2 to copy the token before last; return the losses."""
    torch.manual_seed(0)
    model = weft.build(
        weft.gpt2(depth=2, width=32, heads=4, hidden=64, vocab_size=16, positions=32)
    )
    start = torch.randint(16, (512, 2))
    rows = TensorDataset(start.repeat(1, 8))
    loader = DataLoader(rows, batch_size=32, shuffle=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses: list[float] = []
    while len(losses) < steps:
        for (input_ids,) in loader:
            logits = model(input_ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return losses[:steps]


if __name__ == "__main__":
    print(f"loss {main()[-1]:.3f}")
