"""What all models of reported figures share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Figures(BaseModel):
    """Reported figures: a model that is never changed and refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
