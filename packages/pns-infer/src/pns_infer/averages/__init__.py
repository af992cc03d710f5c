"""Averages over the people of two tables, and decisions; no draws."""
