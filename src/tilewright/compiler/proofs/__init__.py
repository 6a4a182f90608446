"""What must be proved of a lowered kernel, one file per obligation."""
