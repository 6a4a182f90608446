"""Schedules for kernels with matrix products on sm_90a: warp roles, pipelines of tensor copies, wgmma."""
