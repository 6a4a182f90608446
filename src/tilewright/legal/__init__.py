"""Legality of hardware descriptors: judged, explained, synthesised and repaired.

``tma`` and ``wgmma`` plan descriptors for tile accesses; ``tensormap`` judges single requests and ``domain`` families
of them; every verdict cites the rows of ``hw``.
"""
