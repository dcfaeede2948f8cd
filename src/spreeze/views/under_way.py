"""An evaluation that is not complete yet, in words, for the terminal and the page."""

from __future__ import annotations


def describe_under_way(version: float, played: float, episodes: float, mean_return: str) -> str:
    """Return how far it is, and its mean so far; mean_return: empty as long as there is none."""
    text = f"evaluating version {version:,.0f}: {played:,.0f} of {episodes:,.0f} episodes"
    return f"{text}, mean so far {mean_return}" if mean_return else text
