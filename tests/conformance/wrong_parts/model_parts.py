"""A head and an initialisation with one fault each."""

import torch
from torch import nn

import weft
from weft.nn.heads import pool_tokens
from weft.testing import check_head, check_part


@weft.register
class OwnHead(weft.Head):
    """A linear map of the mean token."""

    num_labels: weft.spec.PositiveInt = 3
    fault: str = ""


@weft.implements(OwnHead)
class OwnHeadLayer(nn.Module):
    def __init__(self, head, spec):
        super().__init__()
        self.fault = head.fault
        matrix = nn.Linear(spec.head_input_width, head.num_labels)
        self.out = weft.with_role(matrix, weft.Role.MATRIX)

    def forward(self, sequence):
        if self.fault == "pools padding":
            return self.out(sequence.x_BLD.mean(1))
        return self.out(pool_tokens(sequence, "mean"))


@weft.register
class OwnInit(weft.Init):
    """Normal, with a standard deviation of 0.02."""

    fault: str = ""


@weft.implements(OwnInit)
class OwnInitRule:
    @staticmethod
    def matrix(init, t, facts, generator):
        t.copy_(torch.randn(t.shape, generator=None if init.fault else generator) * 0.02)

    @staticmethod
    def table(init, t, role, width, generator):
        OwnInitRule.matrix(init, t, None, generator)


def check(fault):
    check_head(OwnHead(fault=fault))
    check_part(OwnInit(fault=fault if fault == "global generator" else ""))
