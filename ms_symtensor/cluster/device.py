"""One NPU, as the cost formulas see it."""

from dataclasses import dataclass
from functools import cached_property

import sympy

from ms_symtensor.algebra import symbols


@dataclass(frozen=True)
class Device:
    """A processor with a matrix (cube) unit, a vector unit and HBM. SI units; `_FLOPs` is FLOP per second.

    cube_peak_FLOPs       matrix products in float16 and bfloat16
    cube_fp32_peak_FLOPs  matrix products in float32
    cube_efficiency       fraction of the peak that a large matrix product reaches by itself
    cube_fp32_efficiency  that fraction in float32; as cube_efficiency where the file does not say
    step_efficiency       share of its rate that a product keeps inside a training step; 1: all of it
    attention_efficiency  fraction of the peak that fused attention reaches going forward
    attention_head_dim    head size below which a score takes as long as there, as softmax takes longer than the products; 0: none
    attention_wave_rows   queries of fused attention that all cores work on at once: fewer leave cores idle
    attention_fill_keys   keys that fused attention computes ahead before its pipeline is full
    wave_elements         elements of a product's result that all cores compute at once: fewer leave cores idle
    pipeline_depth        length of the summed dim that it takes to fill and drain a core's pipeline
    vector_peak_FLOPs     element-wise float16 operations
    vector_efficiency     fraction of that peak that a kernel of many operations per element reaches
    hbm_capacity_B        memory on the device
    hbm_usable_B          the part that the framework can hand out
    hbm_bandwidth_Bps     peak of reads and writes together
    hbm_efficiency        fraction of that bandwidth that a streaming operator reaches
    read_efficiency       that fraction for kernels that mostly read, products; as hbm_efficiency where the file does not say
    l2_B                  level-2 cache
    l2_speedup            how many times as fast as device memory it is; 1: of no use
    op_overhead_s         fixed cost of one operator, whatever its size
    collective_overhead_s that of one collective; as op_overhead_s where the file does not say
    host_overhead_s       time of the host to launch one operator where the framework works eagerly; runs beside the device
    communicator_B        memory that the library keeps for every communicator beyond the first, outside of the framework's
    power_W               what a device draws under load; no time hangs on it
    cost_per_hour         price of a device's hour, in a currency of the file's own; no time hangs on it
    reduce_s_per_B        time to add one received byte to a local one in a collective; 0 where the copy engine adds
    """

    name: str
    cube_peak_FLOPs: float
    cube_fp32_peak_FLOPs: float
    cube_efficiency: float
    attention_efficiency: float
    wave_elements: float
    pipeline_depth: float
    vector_peak_FLOPs: float
    hbm_capacity_B: float
    hbm_usable_B: float
    hbm_bandwidth_Bps: float
    hbm_efficiency: float
    l2_B: float
    op_overhead_s: float
    host_overhead_s: float
    communicator_B: float
    reduce_s_per_B: float
    attention_head_dim: float = 0.0
    attention_wave_rows: float = 0.0
    attention_fill_keys: float = 0.0
    step_efficiency: float = 1.0
    vector_efficiency: float = 1.0
    l2_speedup: float = 1.0
    cube_fp32_efficiency: float | None = None
    read_efficiency: float | None = None
    collective_overhead_s: float | None = None
    power_W: float | None = None
    cost_per_hour: float | None = None

    @property
    def collective_s(self) -> float:
        """Fixed cost of one collective."""
        return _given(self.collective_overhead_s, self.op_overhead_s)

    @cached_property
    def values(self) -> dict[sympy.Symbol, float]:
        """The numbers for the symbols of formulas."""
        return {
            symbols.F_cube: self.cube_peak_FLOPs,
            symbols.F_cube32: self.cube_fp32_peak_FLOPs,
            symbols.eta_cube: self.cube_efficiency,
            symbols.eta_cube32: _given(self.cube_fp32_efficiency, self.cube_efficiency),
            symbols.eta_step: self.step_efficiency,
            symbols.eta_att: self.attention_efficiency,
            symbols.D_att: self.attention_head_dim,
            symbols.R_wave: self.attention_wave_rows,
            symbols.S_fill: self.attention_fill_keys,
            symbols.E_wave: self.wave_elements,
            symbols.K_fill: self.pipeline_depth,
            symbols.F_vec: self.vector_peak_FLOPs,
            symbols.eta_vec: self.vector_efficiency,
            symbols.B_hbm: self.hbm_bandwidth_Bps,
            symbols.eta_hbm: self.hbm_efficiency,
            symbols.eta_read: _given(self.read_efficiency, self.hbm_efficiency),
            symbols.t_op: self.op_overhead_s,
            symbols.t_coll: self.collective_s,
            symbols.t_host: self.host_overhead_s,
            symbols.M_hbm: self.hbm_usable_B,
            symbols.L2: self.l2_B,
            symbols.g_L2: self.l2_speedup,
            symbols.gamma: self.reduce_s_per_B,
        }


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
