#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer on the tokens of killed_saves.py, saving at each step.

    peer_killed_saves.py WORKPLACE [resume]
"""
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import common


def main():
    place = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    rows = [{"input_ids": row, "labels": row} for row in common.read_tokens(place / "train.bin", 32)]
    trainer = Trainer(AutoModelForCausalLM.from_pretrained(place / "model"), TrainingArguments(
        output_dir=str(place / "trainer"), max_steps=5, save_steps=1, per_device_train_batch_size=8, use_cpu=True,
        report_to=[], disable_tqdm=True), train_dataset=rows)
    trainer.train(resume_from_checkpoint=len(sys.argv) > 2)


if __name__ == "__main__":
    main()
