"""From encoded tables to what a fit leaves behind."""
