"""The multiplier bootstrap of a two-stage problem."""
