#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of TRL's SFTTrainer on the rows of batch_layout.py.

    peer_batch_layout.py WORKPLACE '{"per_device_train_batch_size": 12}'
"""
import json
import os
import pathlib
import sys

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def main():
    place, changes = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(place / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(place / "model")
    settings = dict(output_dir=str(place / "peer"), max_steps=5, max_length=128, learning_rate=1e-3, logging_steps=1,
                    per_device_train_batch_size=24, use_cpu=True, bf16=False, report_to=[], save_strategy="no",
                    disable_tqdm=True, gradient_checkpointing=False, seed=1, lr_scheduler_type="cosine",
                    **({"ddp_backend": "gloo"} if int(os.environ["WORLD_SIZE"]) > 1 else {}))
    trainer = SFTTrainer(model, SFTConfig(**{**settings, **changes}), processing_class=tokenizer,
                         train_dataset=load_dataset("json", data_files=str(place / "rows.jsonl"), split="train",
                                                    cache_dir=str(place / "cache")))
    trainer.train()
    steps = [{"loss": float(log["loss"]), "grad_norm": float(log["grad_norm"])}
             for log in trainer.state.log_history if "grad_norm" in log]
    if trainer.is_world_process_zero():
        print("\n" + json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main()
