"""A feed-forward of one's own: down(relu(up(x))²) (Primer, So et al. 2021, arXiv:2109.08668,
section 3).

weft train RECIPE --code examples/extend/squared_relu.py \
    --set 'model.decoder.blocks.*.feedforward.inner={"kind": "SquaredReLU", "hidden": 512}'
"""

from torch import Tensor, nn

import weft


@weft.register
class SquaredReLU(weft.FeedForwardSpec):
    """down(relu(up(x))²), without biases."""

    hidden: weft.spec.PositiveInt


@weft.implements(SquaredReLU)
class SquaredReLULayer(nn.Module):
    def __init__(self, feedforward: SquaredReLU, width: int) -> None:
        super().__init__()
        matrix = weft.Role.MATRIX
        self.up = weft.with_role(nn.Linear(width, feedforward.hidden, bias=False), matrix)
        self.down = weft.with_role(nn.Linear(feedforward.hidden, width, bias=False), matrix)

    def forward(self, x_BLD: Tensor) -> Tensor:
        y_BLD: Tensor = self.down(self.up(x_BLD).relu().square())
        return y_BLD
