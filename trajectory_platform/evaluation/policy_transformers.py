"""A checkpoint as a policy, in this process: requests that wait at the same time are answered in one batch.

The context of every turn is made by ``evaluation.context.prompt_ids``, the function that made the training rows, so a
checkpoint is asked exactly as it was trained. Nothing is fetched: files are read from the folder only, and no code in
it is run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.evaluation.context import ContextPolicy, prompt_ids
from trajectory_platform.evaluation.environment import CONTEXT_FULL, Reply, TurnRequest
from trajectory_platform.evaluation.generation import Generated, Wanted, generate
from trajectory_platform.evaluation.kv_cache import PrefixStore, use_grouped_decode
from trajectory_platform.evaluation.policy_sampling import Sampling, turn_seed
from trajectory_platform.identity import sha256_hex

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_COUNTS = ("replies", "batches", "prompt_tokens", "reused_tokens", "completion_tokens", "seconds")
_SAME_PROMPTS = 256  # histories whose prompt is remembered: the samples of one problem begin with the same one
REUSE_BYTES = 1 << 29
GATHER_S = 0.002  # quiet time after which a batch is closed; a batch takes a hundred times as long


class _Waiting(NamedTuple):
    request: TurnRequest
    future: asyncio.Future[Reply]


class TransformersPolicy:
    """Answers with a model of transformers.

    Concurrent requests are collected until nothing new has come for ``GATHER_S`` (all episodes of the driver wait),
    sorted by prompt length and generated in batches of at most ``max_batch``, one batch after the other in a thread of
    its own. Which requests share a batch changes a reply by rounding only (see ``evaluation.generation``); what it
    draws is seeded by task and turn. The number of torch threads is the caller's to set.

    Attributes:
        name: identity of what answers, the way of drawing included.
        counts: ``replies``, ``batches``, ``prompt_tokens``, ``reused_tokens`` of them, ``completion_tokens``;
            ``seconds`` of generation, measured.

    Args:
        model, tokenizer: as ``load_checkpoint`` returns them; the model in evaluation mode.
        context: the context policy of the checkpoint's recipe.
        keep_tokens: every ``Reply.extra`` carries ``{prompt_ids, token_ids, logprobs}`` (for training on rollouts).
        reuse_bytes: memory for the prefixes of attempts that go on (``kv_cache``); 0 keeps none. Whoever changes the
            weights calls :meth:`forget`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        context: ContextPolicy,
        *,
        name: str,
        sampling: Sampling | None = None,
        max_batch: int = 16,
        keep_tokens: bool = False,
        reuse_bytes: int = 0,
    ) -> None:
        self.sampling = sampling or Sampling()
        self.name = f"{name}|{self.sampling.label}"
        self.counts: dict[str, float] = dict.fromkeys(_COUNTS, 0)
        self._model, self._tokenizer, self._context = model, tokenizer, context
        self._max_batch, self._keep_tokens = max_batch, keep_tokens
        self._prefixes = PrefixStore(reuse_bytes) if reuse_bytes else None
        self._prompts: dict[str, list[int] | None] = {}
        self._waiting: list[_Waiting] = []
        self._server: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="generation")

    async def reply(self, request: TurnRequest) -> Reply:
        """The next reply. ``error`` is ``context_full`` where the history fits no context, the reason of a history that
        cannot be rendered, or ``generation_failed`` (out of memory). A cancelled call costs no more tokens."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, loop.create_future())
        self._waiting.append(waiting)
        if self._server is None or self._server.done() or self._server.get_loop() is not loop:
            self._server = loop.create_task(self._serve())
        return await waiting.future

    def reply_now(self, request: TurnRequest) -> Reply:
        """One reply without an event loop, generated alone."""
        return self.reply_all([request])[0]

    def reply_all(self, requests: Sequence[TurnRequest]) -> list[Reply]:
        """Replies to several requests at once, in their order; blocks until all are generated."""
        replies: dict[int, Reply] = {}
        self._answer(requests, [lambda: False] * len(requests), replies.__setitem__)
        return [replies[number] for number in range(len(requests))]

    def forget(self) -> None:
        """Forget the prefixes of attempts: the weights have changed."""
        if self._prefixes is not None:
            self._prefixes.clear()

    async def _serve(self) -> None:
        """Answer what waits until nothing does. Whatever happens, nobody is left waiting."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            await self._gather()
            batch, self._waiting = self._waiting, []
            batch = [one for one in batch if one.future.get_loop() is loop and not one.future.done()]

            def deliver(number: int, reply: Reply, batch: list[_Waiting] = batch) -> None:
                loop.call_soon_threadsafe(_deliver, batch[number].future, reply)

            requests = [one.request for one in batch]
            cancelled = [one.future.cancelled for one in batch]
            work = loop.run_in_executor(self._thread, self._answer, requests, cancelled, deliver)
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                for one in (*batch, *self._waiting):
                    one.future.cancel()
                raise
            error = work.exception()
            for one in batch:
                if error is not None and not one.future.done():
                    one.future.set_exception(error)

    async def _gather(self) -> None:
        before = -1
        while before < len(self._waiting):
            before = len(self._waiting)
            await asyncio.sleep(GATHER_S)

    def _answer(
        self,
        requests: Sequence[TurnRequest],
        cancelled: Sequence[Callable[[], bool]],
        deliver: Callable[[int, Reply], None],
    ) -> None:
        """Build prompts, generate in batches of like length, deliver each reply as soon as its batch is done."""
        begun = time.perf_counter()
        prompts: list[tuple[int, Wanted]] = []
        for number, request in enumerate(requests):
            wanted = self._wanted(request, cancelled[number])
            if isinstance(wanted, Wanted):
                prompts.append((number, wanted))
            else:
                deliver(number, wanted)
        prompts.sort(key=lambda prompt: (prompt[1].new, len(prompt[1].ids), prompt[1].seed))
        for start in range(0, len(prompts), self._max_batch):
            batch = prompts[start : start + self._max_batch]
            try:
                made = self._generate([wanted for _, wanted in batch])
            except RuntimeError as error:  # torch's out of memory is one; the next, smaller histories may still fit
                detail = f"generation_failed: {str(error).splitlines()[0][:200] if str(error) else ''}"
                for number, _ in batch:
                    deliver(number, Reply(error=detail, seconds=time.perf_counter() - begun))
                continue
            for (number, wanted), one in zip(batch, made, strict=True):
                deliver(number, self._read(wanted, one, time.perf_counter() - begun))

    def _wanted(self, request: TurnRequest, cancelled: Callable[[], bool]) -> Wanted | Reply:
        try:
            ids = self._prompt(request)
        except RejectRow as error:
            return Reply(error=str(error))
        if ids is None:
            return Reply(error=CONTEXT_FULL)
        limits = [self._context.reply_tokens, request.limits.reply_tokens, self.sampling.max_tokens]
        max_new = min(limit for limit in limits if limit is not None)
        reuse = None if self._prefixes is None else self._prefixes.find(request.task, ids)
        seed = turn_seed(request.task, request.turn, self.sampling.seed)
        return Wanted(ids, max_new, seed, cancelled, request.task, reuse)

    def _prompt(self, request: TurnRequest) -> list[int] | None:
        """``prompt_ids``, made once for equal histories."""
        key = sha256_hex(jsontext.dumps([request.messages, request.tools]).encode())
        if key not in self._prompts:
            made = prompt_ids(self._tokenizer, request.messages, request.tools, self._context)
            if len(self._prompts) >= _SAME_PROMPTS:
                del self._prompts[next(iter(self._prompts))]
            self._prompts[key] = made
        return self._prompts[key]

    def _generate(self, wanted: Sequence[Wanted]) -> list[Generated]:
        begun = time.perf_counter()
        made = generate(
            self._model,
            wanted,
            end=self._tokenizer.eos_token_id,
            pad=self._tokenizer.pad_token_id,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            keep=None if self._prefixes is None else self._prefixes.keep,
        )
        self.counts["replies"] += len(made)
        self.counts["batches"] += 1
        self.counts["prompt_tokens"] += sum(len(one.ids) for one in wanted)
        self.counts["reused_tokens"] += sum(len(one.ids) - one.new for one in wanted)
        self.counts["completion_tokens"] += sum(len(one.ids) for one in made)
        self.counts["seconds"] += time.perf_counter() - begun
        return made

    def _read(self, wanted: Wanted, made: Generated, seconds: float) -> Reply:
        """Thinking and calls stay in the text, tags included: the parser reads it as it reads miners' replies."""
        ids = made.ids[:-1] if made.ended else made.ids
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        extra = None
        if self._keep_tokens:
            extra = {"prompt_ids": list(wanted.ids), "token_ids": made.ids, "logprobs": made.logprobs}
        finish = "stop" if made.ended else "length"
        return Reply(text, None, None, finish, len(wanted.ids), len(made.ids), 0.0, seconds, None, extra)


def open_checkpoint(
    folder: str | Path,
    *,
    context: ContextPolicy | None = None,
    sampling: Sampling | None = None,
    max_batch: int = 16,
    keep_tokens: bool = False,
    device: str = "cpu",
) -> TransformersPolicy:
    """A checkpoint folder as a policy; named by the checkpoint id of its manifest, or by the content of its files.

    Args:
        context: in place of the one in the folder's recipe (a base model has none).
        device: of the model; weights are float32 on ``cpu``, in their own type elsewhere.

    Raises:
        Abort: no such folder, no context, or files that are no model.
    """
    from trajectory_platform.evaluation.process import read_policy

    place = Path(folder)
    if not place.is_dir():
        raise Abort(f"checkpoint {str(folder)!r} is no folder; models are read from disk only")
    if context is None:
        try:
            context, _ = read_policy(place)
        except FailPartition as error:
            raise Abort(f"{error}; pass a context for a folder that was not trained here") from error
    model, tokenizer = load_checkpoint(place, device=device)
    if device == "cpu":
        use_grouped_decode(model)
    return TransformersPolicy(
        model,
        tokenizer,
        context,
        name=f"checkpoint:{checkpoint_name(place)}",
        sampling=sampling,
        max_batch=max_batch,
        keep_tokens=keep_tokens,
        reuse_bytes=REUSE_BYTES,
    )


def load_checkpoint(folder: Path, *, device: str = "cpu") -> tuple[Any, Any]:
    """(model in evaluation mode, tokenizer) of a folder, without network and without code from it.

    Raises:
        Abort: what is missing, in one line.
    """
    if not (folder / "config.json").is_file():
        raise Abort(f"{folder}: no model can be read (there is no config.json)")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.float32 if device == "cpu" else "auto"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise Abort(f"{folder}: no model can be read ({' '.join(str(error).split())[:200]})") from error
    if tokenizer.eos_token_id is None or tokenizer.chat_template is None:
        raise Abort(f"{folder}: its tokenizer has no {'end token' if tokenizer.chat_template else 'chat template'}")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # padding is masked; any token serves
    return model.to(device).eval(), tokenizer


def checkpoint_name(folder: Path) -> str:
    """The id in the folder's manifest; for a folder without one, ``folder-`` and 12 digits of its files' digest.

    Raises:
        Abort: a damaged manifest.
    """
    manifest = folder / "manifest.json"
    if manifest.is_file():
        try:
            return str(json.loads(manifest.read_text("utf-8"))["checkpoint_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise Abort(f"{folder}: manifest.json is damaged ({type(error).__name__}: {error})") from error
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        whole.update(f"{path.name}\0{digest}\n".encode())
    return f"folder-{whole.hexdigest()[:12]}"


def _deliver(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)
