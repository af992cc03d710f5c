"""Two tables as they are given: read, checked, encoded."""
