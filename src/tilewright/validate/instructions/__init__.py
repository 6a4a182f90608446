"""What PTX instructions do to registers and events, a file per subject."""
