"""What a trainer can be told."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gyre.trajectory.objectives import GrpoSettings, GspoSettings, PpoSettings

_STRICT = ConfigDict(extra="forbid", frozen=True)


class ObjectiveSettings(BaseModel):
    """One of the objectives of `gyre.trajectory.objectives`, with its own settings."""

    model_config = _STRICT

    kind: Literal["ppo", "grpo", "gspo"] = Field(default="grpo", description="which objective")
    ppo: PpoSettings = Field(default_factory=PpoSettings, description="settings of ppo")
    grpo: GrpoSettings = Field(default_factory=GrpoSettings, description="settings of grpo")
    gspo: GspoSettings = Field(default_factory=GspoSettings, description="settings of gspo")

    @property
    def needs_reference(self) -> bool:
        """Whether it takes the reference policy's log-probabilities: those of the weights that training began with."""
        return self.kind == "grpo" and self.grpo.kl_weight > 0


class OptimizerSettings(BaseModel):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101), clipping and warm-up."""

    model_config = _STRICT

    learning_rate: float = Field(default=1e-6, gt=0, description="after the warm-up")
    warmup_updates: int = Field(default=0, ge=0, description="updates over which the rate rises linearly to its value")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of the gradients' mean")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="decay of the squared gradients' mean")
    epsilon: float = Field(default=1e-8, gt=0, description="added to the root of the squared gradients' mean")
    weight_decay: float = Field(default=0.0, ge=0, description="of matrices; norms and biases do not decay")
    max_gradient_norm: float | None = Field(
        default=1.0, gt=0, description="gradients whose norm over all weights is above are scaled down to it"
    )

    def rate(self, update: int) -> float:
        """Return the learning rate of update number `update`, from 0."""
        return self.learning_rate * min(1.0, (update + 1) / (self.warmup_updates + 1))


class TrainerSettings(BaseModel):
    """How weights are trained."""

    model_config = _STRICT

    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings, description="the loss")
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings, description="what makes the update")
    temperature: float = Field(default=1.0, gt=0, description="at which the engines sampled: logits are divided by it")
