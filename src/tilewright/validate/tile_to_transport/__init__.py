"""Tile IR against Transport IR: every stored element is the same term over loaded elements in both."""
