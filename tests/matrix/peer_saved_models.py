#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a peer: trains two steps, saves as its documentation says and as one process would, and compares the files.

    peer_saved_models.py SIDE full|LoRA WORKPLACE
"""
import pathlib
import shutil
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file

import common
import peers

LENGTH = 32


def compare(directory, whole):
    """[tensors that no file has, tensors with other values] of what was saved."""
    saved = {}
    for file in pathlib.Path(directory).glob("*.safetensors"):
        saved.update(load_file(file))
    for file in pathlib.Path(directory).glob("pytorch_model*.bin"):
        saved.update(torch.load(file, weights_only=True))
    names = {name.replace(".default", ""): value for name, value in whole.items()}
    missing = [name for name in names if name not in saved]
    unlike = [name for name in names if name in saved and not torch.equal(saved[name].float(), names[name])]
    return len(missing), len(unlike)


def main():
    side, tuner, place = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    rank, world = peers.start()
    trainer = peers.Trainer(side, tuner, place / "model")
    rows = common.read_tokens(place / "train.bin", LENGTH)
    for step in range(2):
        trainer.step(rows[step * 24 + rank:step * 24 + 24:world])
    whole = trainer.whole()

    def full_state():
        if side == "fsdp2":
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
            return get_model_state_dict(trainer.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if side == "deepspeed-3":
            return trainer.engine._zero3_consolidated_16bit_state_dict()
        return trainer.model.state_dict()

    ways = {"save_pretrained(state_dict=the gathered one) on rank 0": lambda to: save(trainer.model, to, full_state()),
            "save_pretrained() on rank 0": lambda to: save(trainer.model, to, None)}

    def save(model, to, state):
        if rank == 0:
            model.save_pretrained(to, **({"state_dict": state} if state is not None else {}))

    results = []
    for number, (how, way) in enumerate(ways.items()):
        to = place / f"peer-{side}-{tuner}-{world}-{number}"
        if rank == 0:
            shutil.rmtree(to, ignore_errors=True)
        dist.barrier()
        failed = ""
        try:
            way(to)
        except Exception as error:  # what a user would read
            failed = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
        dist.barrier()
        if rank == 0:
            results.append((how, *((failed, "") if failed else compare(to, whole))))
    peers.say({"ways": results}, rank)


if __name__ == "__main__":
    main()
