"""Schedules for kernels with matrix products: warp roles, pipelines of tensor copies, wgmma (sm_90a); mma elsewhere."""
