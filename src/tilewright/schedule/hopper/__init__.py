"""Schedules for kernels with matrix products: warp specialisation, TMA pipelines and wgmma on sm_90a; mma.sync
elsewhere."""
