"""Descriptions and fits for people: tables for a terminal, HTML pages of plots."""

from __future__ import annotations

from .pages import description_page, fit_page
from .tables import distribution_table, facts_table, goodness_table

__all__ = ["description_page", "distribution_table", "facts_table", "fit_page", "goodness_table"]
