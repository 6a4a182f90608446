"""The order of passes, and nowhere else: a traced function becomes planned kernels, planned kernels an artifact."""
