"""The proofs of a lowered kernel, one file per obligation."""
