"""The pass pipeline: a traced function becomes planned kernels, and planned kernels become an artifact."""
