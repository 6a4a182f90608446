"""Ground floor: dtypes, integer expressions, verdicts. Standard library only."""
