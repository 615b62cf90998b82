"""One process of a training, alone or of several: ``python -m trajectory_platform_tests.training.grpo_rank FOLDER``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    """Train as the job in the folder says; write what was drawn and, in the first process, the weights."""
    import torch

    from trajectory_platform.training import grpo_trainer
    from trajectory_platform.training.recipe import Recipe
    from trajectory_platform.training.reinforcement import train_dr_grpo
    from trajectory_platform_tests.training import grpo_market

    job = json.loads((folder / "job.json").read_text("utf-8"))
    rank = int(os.environ["RANK"])
    drawn: list[list[Any]] = []
    made = grpo_trainer.collect

    def collect(*args: Any) -> Any:
        batch = made(*args)
        drawn.append([[one.asked.key, [reply.token_ids for reply in one.replies]] for one in batch.attempts])
        return batch

    grpo_trainer.collect = collect
    world = Path(job["world"])
    own = folder / f"rank-{rank}" if rank else folder / "run"
    own.mkdir(exist_ok=True)
    done = train_dr_grpo(
        grpo_market.rows(2, world),
        Recipe.model_validate(job["recipe"]),
        "dr_grpo",
        parent=None,
        folder=own,
        files={"world": world},
        report=lambda line: print(line, flush=True),
    )
    (folder / f"drawn-{rank}.json").write_text(json.dumps(drawn), "utf-8")
    if rank == 0:
        torch.save([parameter.detach() for parameter in done.model.parameters()], folder / "weights.pt")
        (folder / "history.json").write_text(json.dumps(done.history), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
