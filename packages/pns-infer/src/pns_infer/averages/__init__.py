"""Averages over the units of two tables, and decisions, without draws."""
