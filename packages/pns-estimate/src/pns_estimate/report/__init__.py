"""Answers as one page of HTML."""
