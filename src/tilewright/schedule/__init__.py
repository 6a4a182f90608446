"""Decides: how tiles are spread over threads, where edges are split off, what runs on which schedule; lowers tile
IR."""
