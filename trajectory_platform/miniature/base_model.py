"""The base model of the miniature: a tokenizer and a tiny Qwen3 trained from scratch on drills, in a child process.

    python -m trajectory_platform.miniature.base_model JOB.json

The folder it makes holds what ``model.base`` of a recipe needs: weights, tokenizer, chat template. The tokenizer knows
the words of the small world and has one token each for the constant text of prompts (the tool block, the glue between
the fields of results and calls); none of that text is in a drill.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.child import Report, Runner, run_child, run_job
from trajectory_platform.identity import digest_json
from trajectory_platform.miniature import drills, world
from trajectory_platform.sandbox.products import SERVICES, load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import TOOLS, World, call_tool
from trajectory_platform.traces.schema import result_text
from trajectory_platform.training.pretraining import Pretraining, Row
from trajectory_platform.training.recipe import ModelSpec, TokenizerSpec
from trajectory_platform.training.stage_recipes import Part

VERSION = "miniature-base-2"  # raise it when the same spec would give another model
MAX_GLUE = 64
_MODULE = "trajectory_platform.miniature.base_model"
_REPORT = "base.json"
_REPEATS = 40  # of every number in the tokenizer's texts: enough to become one token each
_FREQUENT = 60  # of every word


class BaseSpec(Part):
    """Everything the base model depends on; ``threads`` changes its speed and the last bits of its weights."""

    model: ModelSpec = ModelSpec(layers=2, kv_heads=4)
    positions: int = Field(1024, ge=64, description="longest context of the model, tokens")
    template: str = "qwen3_training"
    mix: Mapping[str, float] = Field(
        {"pairs": 1.5, "copies": 3.0, "quotes": 0.7, "comparisons": 0.2, "records": 3.0},
        description="shares of the kinds of drills",
    )
    training: Pretraining = Pretraining(steps=900)
    seed: int = 0
    threads: int = Field(1, ge=1)

    def identity(self) -> str:
        """Names the model: the same spec and code, the same name."""
        versions = [VERSION, drills.VERSION, world.VERSION]
        return digest_json({"versions": versions, **self.model_dump(mode="json", exclude={"threads"})})[:16]


def make_base(folder: Path, spec: BaseSpec, *, runner: Runner | None = None) -> dict[str, Any]:
    """Train the base model into ``folder``, or return the report of the one that is there.

    The folder is complete or absent: a killed run leaves nothing that could be taken for a model.

    Returns:
        ``identity``, ``parameters`` and ``vocabulary`` counts, and what ``training.pretraining.pretrain`` reports.

    Raises:
        Abort: another folder, or the model of another spec, is in the way.
        FailPartition: the child process failed.
    """
    if folder.exists():
        return _present(folder, spec)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        job = {"spec": spec.model_dump(mode="json"), "folder": str(scratch / "model")}
        run_job(_MODULE, job, scratch, threads=spec.threads, runner=runner)
        os.replace(scratch / "model", folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _present(folder, spec)


def _present(folder: Path, spec: BaseSpec) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / _REPORT).read_text("utf-8"))
        same = found["identity"] == spec.identity()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Abort(f"{folder} is in the way: it holds no base model ({type(error).__name__})") from error
    if not same:
        raise Abort(f"{folder} holds the base model of another spec ({found['identity']}); remove it or name another")
    return found


def work(job: dict[str, Any], report: Report) -> dict[str, Any]:
    """The child's side: tokenizer, model, drills, weights."""
    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.pretraining import pretrain, use_threads

    spec = BaseSpec.model_validate(job["spec"])
    folder = Path(job["folder"])
    use_threads(spec.threads)
    tokenizer = build_base_tokenizer(spec.template)
    model = build_model(spec.model, tokenizer, max_length=spec.positions, seed=spec.seed)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    report(f"base model: {parameters / 1e6:.2f} M parameters, {len(tokenizer)} tokens in the vocabulary")
    rows = token_rows(tokenizer, spec)
    found = pretrain(model, rows, spec.training, pad=tokenizer.pad_token_id, report=report)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    told = {"identity": spec.identity(), "parameters": parameters, "vocabulary": len(tokenizer), **found}
    written = {**told, "spec": spec.model_dump(mode="json")}
    (folder / _REPORT).write_text(json.dumps(written, sort_keys=True, indent=1), "utf-8")
    return told


def token_rows(tokenizer: Any, spec: BaseSpec) -> Iterator[Row]:
    """Drills as token rows, without end. Each part is tokenised alone: its borders are borders of tokens."""
    known: dict[str, list[int]] = {}
    for drill in drills.drills(spec.seed, spec.mix):
        ids: list[int] = []
        labels: list[int] = []
        for text, trained in drill:
            tokens = known.get(text)
            if tokens is None:
                tokens = tokenizer(text)["input_ids"]
                if len(text) < 24:  # verdicts, single words and line ends come again and again
                    known[text] = tokens
            ids += tokens
            labels += tokens if trained else [-100] * len(tokens)
        yield Row(ids, labels)


def build_base_tokenizer(template: str) -> Any:
    """The tokenizer of the small world: every word, with and without a space before it, is one token, and so are the
    numbers of one to three digits and the constant texts."""
    from trajectory_platform.training.glue import glue_texts
    from trajectory_platform.training.tokenizer import (
        TEMPLATE_PARTS,
        constant_texts,
        template_text,
        train_tokenizer,
    )

    glue = glue_texts([protocol_messages()], MAX_GLUE)
    constants = [*constant_texts([TOOLS]), *TEMPLATE_PARTS, *glue]
    words = [*drills.WORDS, *drills.SPEECH, *(word.capitalize() for word in drills.SPEECH), *SERVICES]
    words += ["success", "failure", "system"]
    texts = [form for word in words for form in (word, f" {word}")] * _FREQUENT
    texts += [*drills.GLUE] * _FREQUENT
    texts += [f"{number:0{width}d}" for width in (1, 2, 3) for number in range(10**width)] * _REPEATS
    return train_tokenizer(texts, constants, TokenizerSpec(vocab=8192), template_text(template))


def protocol_messages() -> list[dict[str, Any]]:
    """Calls and results as they look, for the texts between their values: two made-up products and no request."""
    products = world.make_products(0, per_object=2)[:2]
    products[0]["service"], products[1]["service"] = [SERVICES[0]], list(SERVICES[:2])
    catalogue = load_products(products)
    place = World(catalogue, SearchIndex(catalogue))
    thing = products[0]["title"].split()[0]
    search = {"price": "1-999", "q": thing}
    calls: Sequence[tuple[str, dict[str, Any]]] = (
        ("find_product", search),
        ("find_product", {**search, "service": SERVICES[0]}),
        ("view_product_information", {"product_ids": products[0]["product_id"]}),
        ("recommend_product", {"product_ids": products[0]["product_id"]}),
        ("terminate", {"status": "success"}),
    )
    messages: list[dict[str, Any]] = []
    for name, arguments in calls:
        messages.append({"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
        messages.append({"role": "tool", "content": result_text(call_tool(place, name, arguments))})
    return messages


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1], work))
