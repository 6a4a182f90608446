"""Legality of hardware descriptors: judged, explained, synthesised and repaired.

``tma`` and ``wgmma`` plan descriptors for tile accesses, ``repairs`` finds what makes an access legal (with
``egraph``, ``reinterpret``, ``misaligned_pitch`` and ``prices``), ``factor`` reaches layouts no descriptor produces,
``ragged`` ends copies at their group, ``asynchronous`` chooses for all tensors of a kernel. ``tensormap`` judges single
requests, ``domain`` families of them, ``proof`` what a plan does. Every verdict cites the rows of ``hw``.
"""

from __future__ import annotations

from tilewright.legal.check import check_tensor_map
from tilewright.legal.explain import explain_rule, explain_tma, rules

__all__ = ["check_tensor_map", "explain_rule", "explain_tma", "rules"]
