# SPDX-License-Identifier: Apache-2.0
"""compare_transformers.py (FOLDER IDS LOGITS PACKED_LOGITS)...: FOLDER as transformers computes it
in float32, against `pleach logits` of the same folder (the largest difference) and of the packed
model that it was made from (RMS, in standard deviations: the folder is rounded to bf16)."""
import sys
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def compare(folder, ids, logits, packed):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    faults = {key: list(names) for key, names in info.items() if names}
    if faults:
        sys.exit(f"{folder}: {faults}")
    with torch.no_grad():
        want = model.eval()(load_file(ids)["input_ids"].long().reshape(1, -1)).logits[0]
    difference = (load_file(logits)["logits"] - want).abs().max().item()
    rms = ((load_file(packed)["logits"] - want).pow(2).mean().sqrt() / want.std()).item()
    print(f"{folder.split('/')[-1]}: {difference:.2g} from the folder, {rms:.4f} from the packed model")
    if not (difference < 1e-3 and rms < 0.02):
        sys.exit(f"{folder}: logits differ by {difference:.3g}, from the packed model's by {rms:.3g}")


for i in range(1, len(sys.argv), 4):
    compare(*sys.argv[i:i + 4])
