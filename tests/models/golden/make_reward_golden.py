#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes preferences/reward.txt beside this script, as golden.txt: five steps of TRL's RewardTrainer, on the CPU, in float32.

    python3 make_reward_golden.py             # after make_preferences_golden.py, whose model and rows it takes
    python3 make_reward_golden.py --read DIR  # that transformers reads DIR, which tessera rm has saved: the figures of valid.jsonl

reward/ is the model with a score head, as transformers saves it; reward-adapter/ an adapter of PEFT of the language model, whose B is 0,
with a score head. pairs.margin.jsonl has the rows with margins. A step is one micro-batch: TRL's min_reward and max_reward are means
over micro-batches, and Tessera's are of the global batch.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import SequentialSampler
from trl import RewardConfig, RewardTrainer

import make_dpo_losses_golden as losses
import make_preferences_golden as shared

METRICS = ["accuracy", "margin", "min_reward", "mean_reward", "max_reward"]
REWARD, ADAPTER = os.path.join(shared.FOLDER, "reward"), os.path.join(shared.FOLDER, "reward-adapter")
RUNS = {
    "rm": {"model": "reward"},
    "rm_margin": {"model": "reward", "dataset": "pairs.margin.jsonl"},
    "rm_center": {"model": "reward", "center_rewards_coefficient": 0.05},
    "rm_lora": {"model": ".", "adapters": "reward-adapter"},
}


def read_tokenizer():
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared.CHAT)
    tokenizer.pad_token = "<|endoftext|>"
    return tokenizer


def with_score(folder, pad):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, pad_token_id=pad, dtype=torch.float32)
    return model


def make_start(pad):
    torch.manual_seed(4)
    model = with_score(shared.FOLDER, pad)
    with torch.no_grad():
        model.score.weight.normal_(0, 0.3)
    with tempfile.TemporaryDirectory() as out:
        model.save_pretrained(out)
        os.makedirs(REWARD, exist_ok=True)
        for name in ("model.safetensors", "config.json"):
            shutil.copy(os.path.join(out, name), REWARD)
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, task_type="SEQ_CLS", modules_to_save=["score"],
                                               target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]))
    adapted.save_pretrained(ADAPTER)
    for name in os.listdir(ADAPTER):
        if name not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(ADAPTER, name))
    path = os.path.join(ADAPTER, "adapter_config.json")
    described = json.load(open(path))
    described["base_model_name_or_path"] = None
    described["target_modules"].sort()
    described["modules_to_save"].sort()
    json.dump(described, open(path, "w"), indent=1, sort_keys=True)


def trainer_of(model, tokenizer, data, valid, **options):
    class InOrder(RewardTrainer):
        def _get_train_sampler(self, dataset=None):
            return SequentialSampler(dataset if dataset is not None else self.train_dataset)

    config = RewardConfig(output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, fp16=False, report_to=[], save_strategy="no",
                          logging_steps=1, max_steps=shared.STEPS, per_device_train_batch_size=shared.PAIRS,
                          per_device_eval_batch_size=shared.VALID, lr_scheduler_type="constant", max_grad_norm=1.0,
                          gradient_checkpointing=False, max_length=256, seed=0, **shared.OPTIONS, **options)
    return InOrder(model=model, args=config, train_dataset=data, eval_dataset=valid, processing_class=tokenizer)


def figures(log, prefix=""):
    return {name: log[prefix + name] for name in ["loss", *METRICS]}


def train(run, valid, tokenizer):
    options = RUNS[run]
    model = with_score(os.path.join(shared.FOLDER, options["model"]), tokenizer.pad_token_id)
    if "adapters" in options:
        model = PeftModel.from_pretrained(model, os.path.join(shared.FOLDER, options["adapters"]), is_trainable=True)
    extra = {name: options[name] for name in ("center_rewards_coefficient",) if name in options}
    trainer = trainer_of(model, tokenizer, losses.read(options.get("dataset", "pairs.jsonl")), valid, **extra)
    trainer.train()
    evaluation = trainer.evaluate()
    steps = [{"grad_norm": log["grad_norm"], **figures(log)} for log in trainer.state.log_history if "grad_norm" in log]
    assert len(steps) == shared.STEPS
    return {"options": options, "per_device_train_batch_size": shared.PAIRS, "steps": steps, "eval": figures(evaluation, "eval_")}


def main():
    tokenizer = read_tokenizer()
    valid = losses.read("valid.jsonl")
    if sys.argv[1:2] == ["--read"]:
        model, info = transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[2], output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        return print(figures(trainer_of(model, tokenizer, valid, valid).evaluate(), "eval_"))
    rows = [json.loads(line) for line in open(os.path.join(shared.FOLDER, "pairs.jsonl"))]
    shared.write_rows("pairs.margin.jsonl", [{**row, "margin": (k % 5) * 0.4 - 0.5} for k, row in enumerate(rows)])
    make_start(tokenizer.pad_token_id)
    shared.write_golden("reward.txt", {run: train(run, valid, tokenizer) for run in RUNS})


if __name__ == "__main__":
    main()
