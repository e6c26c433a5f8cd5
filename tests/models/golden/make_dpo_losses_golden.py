#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes preferences/losses.txt beside this script, as golden.txt: the other losses of TRL's DPO and CPO trainers, and several at once.
ms-swift's rpo_alpha is TRL's loss "sft" with that weight.

    python3 make_dpo_losses_golden.py [RUN ...]     # after make_preferences_golden.py, whose model, reference and rows it takes

RUN ...: new runs, which are added at the end of the file.
"""
import json
import os
import sys

import transformers

import make_preferences_golden as shared

DPO = {"rlhf_type": "dpo", "ref_model": "ref"}
TOGETHER = {"per_device_eval_batch_size": shared.VALID}  # as TRL's evaluation here: a loss that sorts the pairs of a micro-batch
RUNS = {
    "dpo_exo_pair": {**DPO, "loss_type": "exo_pair", "beta": 0.2, "label_smoothing": 0.05},
    "dpo_nca_pair": {**DPO, "loss_type": "nca_pair", "beta": 0.1},
    "dpo_bco_pair": {**DPO, "loss_type": "bco_pair", "beta": 0.1},
    "dpo_sppo_hard": {**DPO, "loss_type": "sppo_hard", "beta": 0.1},
    "dpo_apo_zero": {**DPO, "loss_type": "apo_zero", "beta": 0.1},
    "dpo_apo_down": {**DPO, "loss_type": "apo_down", "beta": 0.1},
    "dpo_discopop": {**DPO, "loss_type": "discopop", "beta": 0.02},
    "dpo_sigmoid_norm": {**DPO, "loss_type": "sigmoid_norm", "beta": 2.0},
    "dpo_forward_kl": {"rlhf_type": "dpo", "f_divergence_type": "forward_kl", "beta": 0.1, "adapters": "adapter"},
    "dpo_js_divergence": {**DPO, "loss_type": "robust", "f_divergence_type": "js_divergence", "beta": 0.3, "label_smoothing": 0.1},
    "dpo_alpha_divergence": {"rlhf_type": "dpo", "loss_type": "ipo", "f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.7,
                             "beta": 0.2, "adapters": "adapter"},
    "dpo_aot": {**DPO, "loss_type": "aot", "beta": 0.1, "label_smoothing": 0.1, **TOGETHER},
    "dpo_aot_unpaired": {**DPO, "loss_type": "aot_unpaired", "beta": 0.1, **TOGETHER},
    "dpo_sft": {**DPO, "loss_type": "sft", "beta": 0.1},
    "dpo_rpo_alpha": {**DPO, "rpo_alpha": 0.5, "beta": 0.1},
    "dpo_mpo": {**DPO, "loss_type": "sigmoid bco_pair sft", "loss_weights": "0.8 0.2 1.0", "beta": 0.1},
    "dpo_several": {**DPO, "loss_type": "hinge sigmoid_norm", "beta": 0.3},
    "cpo_hinge": {"rlhf_type": "cpo", "loss_type": "hinge", "beta": 0.2, "cpo_alpha": 0.5},
    "cpo_ipo": {"rlhf_type": "cpo", "loss_type": "ipo", "beta": 0.3, "cpo_alpha": 0.5},
    "cpo_label_smoothing": {"rlhf_type": "cpo", "beta": 0.2, "cpo_alpha": 0.5, "label_smoothing": 0.1},
    "dpo_ld_alpha": {**DPO, "ld_alpha": 0.4, "beta": 0.1},
    "dpo_ld_alpha_ipo": {"rlhf_type": "dpo", "loss_type": "ipo", "ld_alpha": 0.3, "beta": 0.2, "adapters": "adapter"},
    "dpo_ld_alpha_aot": {**DPO, "loss_type": "aot sft", "ld_alpha": 0.0, "beta": 0.1, **TOGETHER},
    "dpo_weighted": {**DPO, "use_weighting": "true", "loss_type": "sigmoid apo_down", "loss_weights": "20.0 10.0", "beta": 0.1},
    "dpo_weighted_ld_alpha": {**DPO, "use_weighting": "true", "ld_alpha": 0.6, "loss_type": "bco_pair sigmoid_norm", "loss_weights": "15.0 25.0",
                              "beta": 0.3},
}


def read(name):
    return shared.datasets.Dataset.from_list([json.loads(line) for line in open(os.path.join(shared.FOLDER, name))])


def main():
    shared.answers_alone()
    shared.RUNS.update(RUNS)
    shared.IN_FLOAT64.add("dpo_forward_kl")  # TRL's norm of step 3 in float32 is 1.0e-5 above that in float64
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared.CHAT)
    tokenizer.pad_token = "<|endoftext|>"
    pairs, valid = read("pairs.jsonl"), read("valid.jsonl")
    chosen = sys.argv[1:]
    shared.write_golden("losses.txt", {run: shared.train(run, pairs, valid, tokenizer) for run in chosen or RUNS}, append=bool(chosen))


if __name__ == "__main__":
    main()
