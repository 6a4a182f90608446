"""Dialect ``tile`` and its tracer: what a kernel computes, before anything is decided about how."""
