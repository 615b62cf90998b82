"""Who may act: a checkpoint, an endpoint or a script, opened by one short text.

==============================  =============================================================================
``checkpoint:FOLDER``, or        a folder with weights, tokenizer, template and recipe, in this process
the path of a folder
``endpoint:URL#MODEL``           any OpenAI-compatible API
``vllm:URL#MODEL``               the same, with earlier thinking sent back for the chat template
``script:NAME``                  a script that ships with the platform (``evaluation.example_scripts``)
==============================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.context import ContextPolicy
from trajectory_platform.evaluation.policy_endpoint import EndpointPolicy, Price
from trajectory_platform.evaluation.policy_sampling import Sampling
from trajectory_platform.evaluation.policy_scripted import ScriptedPolicy
from trajectory_platform.evaluation.rollout import Policy

__all__ = ["EndpointPolicy", "Policy", "Price", "Sampling", "ScriptedPolicy", "open_policy", "parse_spec"]

KINDS = ("checkpoint", "endpoint", "vllm", "script")


def parse_spec(spec: str) -> tuple[str, str]:
    """(kind, rest) of a spec; a text without a known kind is the path of a folder.

    Raises:
        Abort: neither a kind nor a folder.
    """
    kind, colon, rest = spec.partition(":")
    if colon and kind in KINDS:
        if not rest:
            raise Abort(f"policy {spec!r} names nothing after the colon")
        return kind, rest
    if spec and Path(spec).is_dir():
        return "checkpoint", spec
    if kind in ("http", "https"):
        raise Abort("a policy behind HTTP is written endpoint:URL#MODEL or vllm:URL#MODEL")
    raise Abort(
        f"policy {spec!r} is no folder and no checkpoint:FOLDER, endpoint:URL#MODEL, vllm:URL#MODEL or script:NAME"
    )


def open_policy(
    spec: str,
    *,
    sampling: Sampling | None = None,
    context: ContextPolicy | None = None,
    max_batch: int = 16,
    keep_tokens: bool = False,
    device: str = "cpu",
    key_variable: str | None = None,
    prices: Mapping[str, Price] | None = None,
    body: Mapping[str, Any] | None = None,
    outage: Literal["reply", "stop"] = "reply",
    form: str = "xml_array",
) -> Policy:
    """The policy that a spec names. Nothing is sent anywhere before the first reply is asked for.

    Args:
        sampling: how replies are drawn (checkpoints and endpoints); greedy by default.
        context, max_batch, keep_tokens, device: of a checkpoint, see ``policy_transformers``.
        key_variable, body, outage: of an endpoint, see ``policy_endpoint``.
        prices: USD per million tokens by model name; the cost of a model that is not in it is unknown.
        form: how a script writes its calls.

    Raises:
        Abort: a spec that cannot be opened, in one line.
    """
    kind, rest = parse_spec(spec)
    if kind == "checkpoint":
        from trajectory_platform.evaluation.policy_transformers import open_checkpoint

        return open_checkpoint(
            rest, context=context, sampling=sampling, max_batch=max_batch, keep_tokens=keep_tokens, device=device
        )
    if kind == "script":
        return _script(rest, form)
    url, sharp, model = rest.partition("#")
    if not sharp or not model:
        raise Abort(f"a policy behind HTTP names its model after the URL, as {kind}:URL#MODEL")
    return EndpointPolicy(
        url,
        model,
        sampling=sampling,
        key_variable=key_variable,
        price=(prices or {}).get(model),
        reasoning="field" if kind == "vllm" else "omit",
        body=body,
        outage=outage,
    )


def _script(name: str, form: str) -> ScriptedPolicy:
    from trajectory_platform.evaluation.example_scripts import find_script

    script, version = find_script(name)
    return ScriptedPolicy(script, name=f"script:{name}@{version}", form=form)
