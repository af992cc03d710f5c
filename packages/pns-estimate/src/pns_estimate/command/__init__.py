"""The command `pns-estimate`."""
