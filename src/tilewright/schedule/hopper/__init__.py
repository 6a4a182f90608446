"""Schedules for kernels with matrix products on sm_90a: warp roles, rings of tensor copies, wgmma."""
