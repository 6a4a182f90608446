"""Lowers Transport IR to CUDA C++, PTX and a cubin. Emits what the IR says and makes no scheduling decision."""
