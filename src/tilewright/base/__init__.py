"""Dtypes, integer expressions and verdicts, which every room uses. Standard library only."""
