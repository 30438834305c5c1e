"""What each command of `hilcast` does: a function of its arguments that returns the exit code."""
