"""Validation campaigns of the contract checker: mutants, right variants, and the judge of both."""
