#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes preferences/experts.txt beside this script, as golden.txt: five steps of TRL's DPO and KTO of a mixture of experts with a balance
loss, and of a dense model whose reference is that mixture, which has another hidden size.

    python3 make_experts_preferences_golden.py     # after make_preferences_golden.py and make_kto_golden.py, whose model and rows it takes

experts/ is the mixture. TRL's loss has the balance loss times router_aux_loss_coef in it; here it is written without, and aux_loss beside
it, as Tessera prints them. TRL's evaluation has a balance loss, too, and Tessera's none.
"""
import json
import os
import shutil
import tempfile

import torch
import transformers
from torch.utils.data import SequentialSampler
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer

import make_dpo_losses_golden as losses
import make_preferences_golden as shared

EXPERTS = os.path.join(shared.FOLDER, "experts")
COEFFICIENT = 0.05
RUNS = {
    "dpo_experts": {"model": "experts", "rlhf_type": "dpo", "beta": 0.1, "ref_model": "ref"},
    "dpo_reference_experts": {"model": ".", "rlhf_type": "dpo", "beta": 0.1, "ref_model": "experts"},
    "kto_experts": {"model": "experts", "rlhf_type": "kto", "beta": 0.2, "dataset": "labelled.jsonl", "val_dataset": "labelled.valid.jsonl"},
}


def make_experts():
    dense = json.load(open(os.path.join(shared.FOLDER, "config.json")))
    config = {name: dense[name] for name in ("vocab_size", "max_position_embeddings", "rms_norm_eps", "hidden_act", "initializer_range",
                                             "tie_word_embeddings", "eos_token_id")}
    config.update(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=24, intermediate_size=32, num_hidden_layers=3,
                  moe_intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=12, num_experts=4, num_experts_per_tok=2,
                  norm_topk_prob=True, rope_theta=10000.0, mlp_only_layers=[1], output_router_logits=True,
                  router_aux_loss_coef=COEFFICIENT)
    os.makedirs(EXPERTS, exist_ok=True)
    json.dump(config, open(os.path.join(EXPERTS, "config.json"), "w"), indent=1)
    torch.manual_seed(9)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(EXPERTS)).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.25)
    with tempfile.TemporaryDirectory() as out:
        model.save_pretrained(out)
        shutil.copy(os.path.join(out, "model.safetensors"), EXPERTS)


def load(name):
    return transformers.AutoModelForCausalLM.from_pretrained(os.path.join(shared.FOLDER, name), dtype=torch.float32,
                                                             attn_implementation="eager", experts_implementation="eager")


def train(run, tokenizer):
    options = RUNS[run]
    dpo = options["rlhf_type"] == "dpo"
    micro = shared.MICRO if dpo else shared.PAIRS
    base, config = (DPOTrainer, DPOConfig) if dpo else (KTOTrainer, KTOConfig)
    metrics = [*shared.METRICS] if dpo else [name for name in shared.METRICS if name != "rewards/accuracies"] + ["kl"]
    if options["model"] == "experts":
        metrics.append("aux_loss")

    class InOrder(base):
        def _get_train_sampler(self, dataset=None):
            return SequentialSampler(dataset if dataset is not None else self.train_dataset)

    torch.manual_seed(0)
    args = config(output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, fp16=False, report_to=[], save_strategy="no", logging_steps=1,
                  max_steps=shared.STEPS, per_device_train_batch_size=micro, gradient_accumulation_steps=shared.PAIRS // micro,
                  per_device_eval_batch_size=shared.VALID, lr_scheduler_type="constant", max_grad_norm=1.0, gradient_checkpointing=False,
                  max_length=256, seed=0, beta=options["beta"], **({} if dpo else {"train_sampling_strategy": "sequential"}), **shared.OPTIONS)
    trainer = InOrder(model=load(options["model"]), ref_model=load(options.get("ref_model", options["model"])), args=args,
                      train_dataset=losses.read(options.get("dataset", "pairs.jsonl")),
                      eval_dataset=losses.read(options.get("val_dataset", "valid.jsonl")), processing_class=tokenizer)
    trainer.train()
    evaluation = {name.removeprefix("eval_"): value for name, value in trainer.evaluate().items()}

    def figures(log, names):
        return {"loss": log["loss"] - COEFFICIENT * log.get("aux_loss", 0.0), **{name: log[name] for name in names if name in log}}

    steps = [{**figures(log, metrics), "grad_norm": log["grad_norm"]} for log in trainer.state.log_history if "grad_norm" in log]
    assert len(steps) == shared.STEPS
    return {"options": options, "per_device_train_batch_size": micro, "steps": steps,
            "eval": figures(evaluation, [name for name in metrics if name != "aux_loss"])}


def main():
    make_experts()
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared.CHAT)
    tokenizer.pad_token = "<|endoftext|>"
    shared.write_golden("experts.txt", {run: train(run, tokenizer) for run in RUNS})


if __name__ == "__main__":
    main()
