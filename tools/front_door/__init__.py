"""What a stranger may hand in, made at random."""
