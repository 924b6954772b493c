"""Exported samples in the real packages of trainers, where these are installed: `gyre[trainers]`, and verl."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange_samples import assembled, defined_coefficients

from gyre.trajectory.exchange import export, load
from gyre.trajectory.samples import Samples

torch = pytest.importorskip("torch", reason="trainers take tensors")


@pytest.fixture
def step() -> Samples:
    """Three executions in two groups; rows of "a" share a trained prefix, lengths differ."""
    rows = [
        {"execution": "a", "tokens": [4, 5, 6, 7], "loss_mask": [0, 1, 0, 1], "edges": [0, 1, 2, 3]},
        {"execution": "a", "tokens": [4, 5, 9], "loss_mask": [0, 0, 1], "edges": [0, 1, 4]},
        {"execution": "b", "tokens": [4, 5], "loss_mask": [0, 1], "edges": [0, 1]},
        {"execution": "c", "tokens": [8, 6, 7, 5, 4], "loss_mask": [0, 0, 1, 1, 1], "edges": [0, 1, 2, 3, 4]},
    ]
    return assembled(rows, ["a", "b", "c"], ["g", "g", "h"], [0.5, -0.75, 2.0])


class TestTinker:
    """`tinker.Datum`: the client checks shapes and types; the loss itself runs at the service."""

    def test_a_datum_holds_all_and_gives_it_back(self, step: Samples) -> None:
        tinker = pytest.importorskip("tinker", reason="Tinker's client is not installed")
        exported = export(step, "tinker")
        back = []
        for one in exported:
            datum = tinker.Datum(
                model_input=tinker.ModelInput.from_ints(one["model_input"]), loss_fn_inputs=one["loss_fn_inputs"]
            )
            inputs = datum.loss_fn_inputs
            assert {name: value.dtype for name, value in inputs.items()} == {
                "target_tokens": "int64",
                "logprobs": "float32",
                "advantages": "float32",
                "mask": "float32",
            }
            assert all(value.shape == [datum.model_input.length] for value in inputs.values())
            arrays = {name: value.to_numpy() for name, value in inputs.items()}
            back.append({**one, "model_input": datum.model_input.to_ints(), "loss_fn_inputs": arrays})
        assert defined_coefficients(load(back, "tinker")) == pytest.approx(defined_coefficients(step), rel=1e-6)


class TestVerl:
    """`DataProto`, and verl's own aggregation and policy loss."""

    @pytest.fixture(params=["token-sum", "token-mean", "seq-mean-token-sum"])
    def mode(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def batch(self, step: Samples, mode: str) -> Any:
        verl = pytest.importorskip("verl", reason="verl is not installed")
        from gyre.trajectory.objectives.tensors import to_tensors

        return verl.DataProto.from_dict(**to_tensors(export(step, "verl", loss_agg_mode=mode)))

    def test_the_policy_losss_gradient_is_minus_the_weights(self, batch: Any, mode: str, step: Samples) -> None:
        from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
        from verl.workers.config import ActorConfig

        old = batch.batch["rollout_log_probs"]
        new = old.clone().requires_grad_()
        config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, loss_agg_mode=mode)
        loss, _ = compute_policy_loss_vanilla(
            old, new, batch.batch["advantages"], batch.batch["response_mask"], mode, config
        )
        loss.backward()
        assert new.grad is not None
        # At ratio 1 the gradient by a log-probability is minus the token's weight.
        found = export(step, "verl")
        found["tensors"]["advantages"] = -new.grad.numpy()
        assert defined_coefficients(load(found, "verl")) == pytest.approx(defined_coefficients(step), rel=1e-6)

    def test_positions_are_verls(self, batch: Any) -> None:
        from verl.utils.model import compute_position_id_with_mask

        assert torch.equal(batch.batch["position_ids"], compute_position_id_with_mask(batch.batch["attention_mask"]))


class TestTrl:
    """`GRPOTrainer` on a tiny model: a real optimizer step against the gradient of the loss by its definition."""

    RATE = 0.5

    @pytest.fixture
    def model(self) -> Any:
        transformers = pytest.importorskip("transformers", reason="TRL is not installed")
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        return transformers.LlamaForCausalLM(config)

    @pytest.fixture
    def on_policy(self, model: Any, step: Samples) -> Samples:
        """The step with the model's own log-probabilities, so that every ratio is 1."""
        logprobs = np.zeros(len(step.tokens), np.float32)
        with torch.no_grad():
            for at, values in row_logprobs(model, step):
                logprobs[at.start + 1 : at.stop] = values.numpy()
        return replace(step, logprobs=np.where(step.loss_mask, logprobs, 0).astype(np.float32))

    @pytest.mark.parametrize("accumulation", [1, 2])
    def test_one_step_of_training_follows_the_weights(
        self, model: Any, on_policy: Samples, accumulation: int, tmp_path: Path
    ) -> None:
        pytest.importorskip("trl", reason="TRL is not installed")
        before = [parameter.detach().clone() for parameter in model.parameters()]
        expected = gradient(model, on_policy)
        trainer_on(model, on_policy, accumulation, self.RATE, tmp_path).train()
        for old, new, slope in zip(before, model.parameters(), expected, strict=True):
            torch.testing.assert_close(old - new.detach(), self.RATE * slope, rtol=2e-4, atol=2e-7)


def row_logprobs(model: Any, samples: Samples) -> Iterator[tuple[slice, Any]]:
    """Each row alone, without padding: log-probability of each token but the first."""
    for row in range(samples.rows):
        at = samples.row(row)
        tokens = torch.tensor(samples.tokens[at].astype(np.int64))[None]
        scores = model(tokens).logits[0, :-1].log_softmax(-1)
        yield at, scores.gather(1, tokens[0, 1:, None])[:, 0]


def gradient(model: Any, samples: Samples) -> list[Any]:
    """Gradient of -sum of A_e / (N_e * E) * log-probability, which at ratio 1 is that of the clipped objective."""
    weights = torch.tensor(samples.loss_weights(), dtype=torch.float32)
    loss = torch.zeros(())
    for at, values in row_logprobs(model, samples):
        loss = loss - (weights[at][1:] * values).sum()
    return list(torch.autograd.grad(loss, list(model.parameters())))


def trainer_on(model: Any, samples: Samples, accumulation: int, rate: float, folder: Path) -> Any:
    """TRL's trainer for one step of plain gradient descent on exported samples."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    from gyre.trajectory.objectives.tensors import to_tensors

    class OnSamples(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            return to_tensors(export(samples, "trl"))

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(16)}, unk_token="w3"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", bos_token="w1", eos_token="w2")
    settings = GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, max_steps=1, learning_rate=rate, lr_scheduler_type="constant",
        optim="sgd", max_grad_norm=0.0, beta=0.0, num_generations=samples.rows, report_to=[], save_strategy="no",
        per_device_train_batch_size=samples.rows // accumulation, gradient_accumulation_steps=accumulation,
        gradient_checkpointing=False, disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    return OnSamples(
        model=model,
        args=settings,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["w4"] * samples.rows}),
        processing_class=tokenizer,
    )
