"""What can be asked of a fit, and the answers."""
