"""What a run needs before it starts: FLOPs, memory per device, bytes per link, time, energy and money, in closed formulas; and the simulation
of many ranks, which checks them."""

from ..registry import register_named
from .hardware import Accelerator

for _name in (
    "h100",
    "h200",
    "b200",
    "a100",
    "a100-40gb",
    "v100",
    "p100",
    "mi300x",
    "rtx4090",
    "tpu-v4",
    "cpu",
):
    register_named(Accelerator, _name, f"{__name__}.hardware:{_name.replace('-', '_').upper()}")
