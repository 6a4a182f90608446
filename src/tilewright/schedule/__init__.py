"""The scheduler: distributes tiles over threads, splits off edges, chooses pipelines and program order, and lowers Tile
IR to Transport IR."""
