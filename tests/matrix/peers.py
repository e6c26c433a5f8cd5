# SPDX-License-Identifier: Apache-2.0
"""The peers' side: a model trained by PyTorch's FSDP2 or by DeepSpeed on CPUs, one process a rank."""
import sys

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM


def start():
    """Joins the ranks; returns this one and their number."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


class Trainer:
    """AdamW steps on a model directory. side: "fsdp2", "ddp" or "deepspeed-STAGE"; tuner: "full" or "LoRA"."""

    def __init__(self, side, tuner, directory, rate=1e-2, micro=1):
        self.side = side
        torch.manual_seed(1)
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        if tuner == "LoRA":
            from peft import LoraConfig, get_peft_model
            self.model = get_peft_model(self.model, LoraConfig(r=8, lora_alpha=32, target_modules="all-linear"))
            for name, parameter in self.model.named_parameters():  # B is 0: every part of the adapter is to be told apart
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.02)
        trained = lambda: [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if side == "fsdp2":
            from torch.distributed.fsdp import fully_shard
            for block in (self.model.base_model.model if tuner == "LoRA" else self.model).model.layers:
                fully_shard(block)
            fully_shard(self.model)
            self.optimizer = torch.optim.AdamW(trained(), lr=rate)
        elif side == "ddp":
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
            self.optimizer = torch.optim.AdamW(trained(), lr=rate)
        else:
            import deepspeed
            self.engine, self.optimizer, _, _ = deepspeed.initialize(
                model=self.model, optimizer=torch.optim.AdamW(trained(), lr=rate), config={
                    "train_micro_batch_size_per_gpu": micro, "zero_optimization": {
                        "stage": int(side[-1]), "stage3_param_persistence_threshold": 0},
                    "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})

    def step(self, rows):
        """One optimizer step on this rank's rows. Returns their mean loss."""
        if self.side.startswith("deepspeed"):
            loss = self.engine(input_ids=rows, labels=rows).loss
            self.engine.backward(loss)
            self.engine.step()
        else:
            loss = self.model(input_ids=rows, labels=rows).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return float(loss)

    def save(self, directory):
        """A checkpoint of weights and optimizer, each rank its shard."""
        if self.side.startswith("deepspeed"):
            self.engine.save_checkpoint(directory, tag="step")
            return
        import torch.distributed.checkpoint as dcp
        dcp.save(self._state(), checkpoint_id=directory)

    def load(self, directory):
        """Continues a checkpoint, which any number of ranks may have saved."""
        if self.side.startswith("deepspeed"):
            self.engine.load_checkpoint(directory, tag="step")
            return
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict
        state = self._state()
        dcp.load(state, checkpoint_id=directory)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def _state(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def whole(self):
        """Every trained parameter, whole, on each rank: name -> tensor."""
        out = {}
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            if self.side == "fsdp2":
                out[name] = parameter.detach().full_tensor().clone()
            elif self.side == "deepspeed-3":
                import deepspeed
                with deepspeed.zero.GatheredParameters([parameter]):
                    out[name] = parameter.detach().clone()
            else:
                out[name.removeprefix("module.")] = parameter.detach().clone()
        return out


def say(result, rank):
    """The last line of rank 0, which common.peer reads."""
    import json
    dist.barrier()
    if rank == 0:
        sys.stdout.write("\n" + json.dumps(result) + "\n")
        sys.stdout.flush()
    dist.destroy_process_group()
