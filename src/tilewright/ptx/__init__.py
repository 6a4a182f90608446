"""PTX: reader, control-flow graph, SSA form, opcode semantics, and a machine that executes kernels on NumPy arrays."""
