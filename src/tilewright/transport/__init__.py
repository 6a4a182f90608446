"""Dialect ``transport``: who moves what, when. Lowered from ``tile`` by ``schedule``, printed by ``codegen``,
executed by ``simulate``, judged (after extraction to plain data) by ``verify``."""
