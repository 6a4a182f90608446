"""Validation campaigns of the protocol verifier: mutants, right variants, and the judge of both."""
