"""How far draws are trusted: their scale, counts of cells, corrections."""
