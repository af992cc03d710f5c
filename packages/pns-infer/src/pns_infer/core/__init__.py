"""From draws to critical values, intervals, bands, tests and metrics."""
