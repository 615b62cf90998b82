"""The model that a run starts from, where the recipe names a folder: measured and asked like a checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.stages.context import StageContext

if TYPE_CHECKING:
    from trajectory_platform.evaluation.rollout_launch import Subject
    from trajectory_platform.training.recipe import Recipe

FOLDER = ".base"  # below checkpoint_root: base models under the chat template of a recipe
TEMPLATE = "chat_template.jinja"


def base_subject(ctx: StageContext, recipe: Recipe) -> Subject:
    """Who a base folder is: its own weights and tokenizer, asked under the template and in the context of the recipe.

    Its name is ``base-`` and 12 digits of the digest of the files and the template, so that days share it.

    Raises:
        Abort: the recipe names no base folder, or it is not there.
    """
    from trajectory_platform.evaluation.rollout_launch import trained
    from trajectory_platform.identity import digest_json
    from trajectory_platform.training.launch import base_digest

    digest = base_digest(recipe)
    if recipe.model.base is None or digest is None:
        raise Abort(f"recipe {recipe.name!r} names no base model: an untrained one is measured beside its checkpoint")
    context = recipe.context.model_dump(mode="json")
    name = f"base-{digest_json([digest, recipe.template, context])[:12]}"
    folder = _under_template(Path(ctx.settings.checkpoint_root) / FOLDER / name, Path(recipe.model.base), recipe)
    return trained(name, folder, recipe.threads, {"context": context})


def _under_template(place: Path, base: Path, recipe: Recipe) -> Path:
    """A folder of links to the files of the base, with the recipe's chat template; made once, by one rename."""
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        for path in sorted(base.iterdir()):
            if path.is_file() and path.name not in (TEMPLATE, "manifest.json", "rows_report.json", "recipe.yaml"):
                (made / path.name).symlink_to(path.resolve())
        (made / TEMPLATE).write_text(_template_text(recipe.template), "utf-8")
        made.rename(place)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        if not place.is_dir():
            raise FailPartition(f"base model {base}: {error}") from error
    return place


def _template_text(name: str) -> str:
    """The template that TRL ships under this name, read without importing it."""
    found = util.find_spec("trl")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    for folder in places:
        path = Path(folder) / "chat_templates" / f"{name}.jinja"
        if path.is_file():
            return path.read_text("utf-8")
    raise Abort(f"chat template {name!r} needs TRL: pip install -c constraints.txt -e '.[train]'")
