"""Specifications of accelerators. To add one: `weft.register(Accelerator("mine", …))` in a file
that is passed as `--code FILE`.
"""

from dataclasses import dataclass

from ..support.registry import Named, named, register_named

GB = 10**9
TERA = 1e12


@dataclass(frozen=True)
class Accelerator(Named):
    """One device and how it is connected; every number is that of one device.

    Attributes:
        name: the name on the command line.
        bf16_flops: peak FLOP/s of dense matrix products with 16-bit inputs and 32-bit sums.
        fp32_flops: peak FLOP/s with 32-bit inputs, without tensor cores.
        memory: bytes.
        link: bytes/s to other devices of its node, in one direction.
        network: bytes/s to devices of other nodes, in one direction.
        per_node: devices that share a node.
        utilisation: share of the peak that matrix products of a good run reach, without the time
            spent waiting for the network.
    """

    name: str
    bf16_flops: float
    fp32_flops: float
    memory: float
    link: float
    network: float
    per_node: int
    utilisation: float = 0.5

    @property
    def fastest_precision(self) -> str:
        """The precision that `precision="auto"` selects."""
        return "bf16" if self.bf16_flops > self.fp32_flops else "fp32"

    def flops(self, precision: str) -> float:
        """Return the peak FLOP/s in a precision of `Recipe.precision`."""
        return self.fp32_flops if precision == "fp32" else self.bf16_flops


# Peaks, memory and links are the makers' datasheets', named at each. Networks are those of the
# makers' reference nodes: one adapter per device.
# Utilisation: GPT 175B on 1,024 A100 takes 52 % of the peak (Narayanan et al. 2021,
# arXiv:2104.04473, table 1), Llama 3 405B 38 to 43 % of H100s, waits included (arXiv:2407.21783,
# table 4), PaLM 540B 57.8 % of TPU v4, recomputation included (arXiv:2204.02311, section 4.1).

# NVIDIA H100 datasheet (SXM); DGX H100: one 400 Gbit/s adapter per device
H100 = Accelerator("h100", 989.4e12, 67e12, 80 * GB, 450 * GB, 50 * GB, 8)
# NVIDIA H200 datasheet (SXM); as H100 but for its memory
H200 = Accelerator("h200", 989.4e12, 67e12, 141 * GB, 450 * GB, 50 * GB, 8)
# NVIDIA DGX B200 datasheet: 1,440 GB and 72 PFLOP/s of FP8 for 8; dense 16-bit is a quarter of that
B200 = Accelerator("b200", 2250e12, 75e12, 180 * GB, 900 * GB, 50 * GB, 8, 0.45)
# NVIDIA A100 datasheet (SXM 80 GB); DGX A100: one 200 Gbit/s adapter per device
A100 = Accelerator("a100", 312e12, 19.5e12, 80 * GB, 300 * GB, 25 * GB, 8, 0.55)
# NVIDIA A100 datasheet (SXM 40 GB)
A100_40GB = Accelerator("a100-40gb", 312e12, 19.5e12, 40 * GB, 300 * GB, 25 * GB, 8, 0.55)
# NVIDIA V100 datasheet (SXM2 32 GB): 16-bit is fp16; DGX-1: four 100 Gbit/s adapters for eight
V100 = Accelerator("v100", 125e12, 15.7e12, 32 * GB, 150 * GB, 6.25 * GB, 8, 0.4)
# NVIDIA P100 datasheet (SXM2). fp32: 9.5 TFLOP/s sustained, as Vaswani et al. 2017
# (arXiv:1706.03762, section 6.1) count it
P100 = Accelerator("p100", 21.2e12, 9.5e12, 16 * GB, 80 * GB, 6.25 * GB, 8, 0.32)
# AMD Instinct MI300X datasheet; eight 400 Gbit/s adapters for eight
MI300X = Accelerator("mi300x", 1307.4e12, 163.4e12, 192 * GB, 448 * GB, 50 * GB, 8, 0.4)
# NVIDIA Ada architecture white paper: 16-bit inputs, 32-bit sums; no NVLink, PCIe 4.0 × 16
RTX4090 = Accelerator("rtx4090", 165.2e12, 82.6e12, 24 * GB, 32 * GB, 3.1 * GB, 8, 0.5)
# Jouppi et al. 2023 (arXiv:2304.01433, table 4): 275 TFLOP/s, 32 GB, six links of 50 GB/s
TPU_V4 = Accelerator("tpu-v4", 275e12, 34e12, 32 * GB, 300 * GB, 300 * GB, 4, 0.58)
# One core with AVX2 at 2.5 GHz: two units × 8 numbers × 2 operations per cycle (Intel 64
# optimisation reference manual); no faster in 16 bits without AMX
CPU = Accelerator("cpu", 80e9, 80e9, 4 * GB, 10 * GB, 1.25 * GB, 64, 0.7)

KINDS = (H100, H200, B200, A100, A100_40GB, V100, P100, MI300X, RTX4090, TPU_V4, CPU)
for _device in KINDS:
    register_named(Accelerator, _device.name, _device)


def accelerator(name: str) -> Accelerator:
    """Return the device registered as `name`."""
    device: Accelerator = named(Accelerator, name)
    return device
