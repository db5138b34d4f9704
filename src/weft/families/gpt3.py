"""GPT-3: GPT-2, larger, with 2,048 positions (Brown et al. 2020, arXiv:2005.14165, table 2.1).

The paper alternates dense and banded layers without giving the band; here all are dense. It prints
24 heads for XL and a width of 5140 for 13B; 16 heads match its 1.3 B parameters, and a width of
5120 its 40 heads of 128.
"""

from dataclasses import replace

from .base import size_table
from .gpt2 import gpt2

SIZES = size_table(
    "depth width heads positions",
    small=(12, 768, 12, 2048),
    medium=(24, 1024, 16, 2048),
    large=(24, 1536, 16, 2048),
    xl=(24, 2048, 16, 2048),
    _2__7b=(32, 2560, 32, 2048),
    _6__7b=(32, 4096, 32, 2048),
    _13b=(40, 5120, 40, 2048),
    _175b=(96, 12288, 96, 2048),
)

gpt3 = replace(gpt2, name="gpt3", paper="arXiv:2005.14165", sizes=SIZES)
