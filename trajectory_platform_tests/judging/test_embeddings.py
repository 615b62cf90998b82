"""A title encoder in a model folder: real tiny models, built here, saved and read back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trajectory_platform.errors import Abort
from trajectory_platform.judging import outcome
from trajectory_platform.judging.embeddings import FolderEncoder, cosine, find_encoder, read_layout
from trajectory_platform.judging.matching import find_rules
from trajectory_platform_tests.judging.dialogues import FOREIGN_KETTLE, KETTLE, POT, PRODUCTS, REWARD, dialogue, problem

TITLES = [KETTLE["title"], POT["title"], FOREIGN_KETTLE["title"], "steel", "a b c d e f g h i j k l"]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for title in TITLES for word in title.split()})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[END]", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[END]", vocabulary["[END]"])]
    inner.post_processor = processors.TemplateProcessing(single="[CLS] $A [END]", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64)


def save(folder: Path, model: Any, pooling: dict[str, Any] | None, **files: Any) -> Path:
    """A folder in the layout of sentence-transformers."""
    torch.manual_seed(7)
    built = model()
    built.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    if pooling is not None:
        kind = "sentence_transformers.models."
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        listed = [
            {"idx": n, "name": str(n), "path": path, "type": kind + name} for n, (path, name) in enumerate(modules)
        ]
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def bert() -> Any:
    from transformers import BertConfig, BertModel

    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertModel(BertConfig(vocab_size=32, max_position_embeddings=64, **size))


def qwen() -> Any:
    from transformers import Qwen3Config, Qwen3Model

    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return Qwen3Model(Qwen3Config(vocab_size=32, num_key_value_heads=1, head_dim=8, **size))


MODES = {
    "cls": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    "mean": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
    "lasttoken": {"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model per pooling."""
    models = {"cls": bert, "mean": bert, "lasttoken": qwen}
    return {
        mode: save(tmp_path_factory.mktemp(mode), build, MODES[mode], sentence_bert_config={"max_seq_length": 6})
        for mode, build in models.items()
    }


def by_hand(folder: Path, mode: str, title: str) -> np.ndarray[Any, Any]:
    """The vector by the model's own classes, with another title padded beside it."""
    from transformers import BertModel, PreTrainedTokenizerFast, Qwen3Model

    words = PreTrainedTokenizerFast.from_pretrained(folder)
    model = (Qwen3Model if mode == "lasttoken" else BertModel).from_pretrained(folder).eval()
    tokens = words([title, TITLES[-1]], return_tensors="pt", padding=True, truncation=True, max_length=6)
    with torch.inference_mode():
        states = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).last_hidden_state[0]
    kept = states[tokens["attention_mask"][0].bool()]
    pooled = {"cls": kept[0], "mean": kept.mean(dim=0), "lasttoken": kept[-1]}[mode]
    return (pooled / pooled.norm()).numpy()


@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_pooling_gives_the_model_s_own_vector(folders: dict[str, Path], mode: str) -> None:
    encoder = FolderEncoder(folders[mode])
    for title in TITLES:
        vector = encoder.vector(f"  {title} ")
        assert vector is not None and vector.dtype == np.float32
        assert np.allclose(vector, by_hand(folders[mode], mode, title), atol=1e-5)
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-6)


def test_a_vector_does_not_depend_on_what_was_encoded_before(folders: dict[str, Path]) -> None:
    first, second = FolderEncoder(folders["mean"]), FolderEncoder(folders["mean"])
    forward = [first.vector(title) for title in TITLES]
    backward = [second.vector(title) for title in TITLES[::-1]][::-1]
    assert all(np.array_equal(one, other) for one, other in zip(forward, backward, strict=True))  # type: ignore[arg-type]


def test_a_score_uses_the_model_and_names_it(folders: dict[str, Path]) -> None:
    spec = f"sentence-transformers:{folders['mean']}"
    rules = find_rules("sn15", spec)
    assert rules.name == f"sn15-1/{rules.titles.encoder.name}/exact-1"  # type: ignore[union-attr]
    vectors = [rules.titles.encoder.vector(title) for title in (FOREIGN_KETTLE["title"], REWARD["title"][0])]  # type: ignore[union-attr]
    similar = bool(cosine(*vectors) >= np.float32(0.7))  # type: ignore[arg-type]
    options = {"title_regime": "sn15", "title_encoder": spec}
    scored = outcome.score(dialogue("5100000003"), problem("Product", REWARD), PRODUCTS, **options)
    assert scored.success is similar and scored.score["title"] == float(similar)


def test_the_name_is_the_content_of_the_folder_not_its_place(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = shutil.copytree(folders["mean"], tmp_path / folders["mean"].name)
    one, other = find_encoder(f"sentence-transformers:{folders['mean']}"), find_encoder(f"sentence-transformers:{copy}")
    assert one is not None and other is not None and one.name == other.name
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(MODES["cls"]))
    changed = find_encoder(f"sentence-transformers:{copy}")
    assert changed is not None and changed.name != one.name


def test_a_plain_model_folder_is_pooled_by_the_mean(tmp_path: Path) -> None:
    assert read_layout(save(tmp_path / "plain", bert, None)).pooling == "mean"


@pytest.mark.parametrize(
    ("pooling", "files", "said"),
    [
        ({"pooling_mode_max_tokens": True}, {}, "pooling"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, {}, "pooling"),
        ({}, {}, "pooling"),
        (
            MODES["mean"],
            {"modules": [{"type": "x.Transformer", "path": ""}, {"type": "x.Dense", "path": "d"}]},
            "Dense",
        ),
        (MODES["mean"], {"modules": [{"type": "x.Transformer", "path": "../.."}]}, "outside"),
        (MODES["mean"], {"config_sentence_transformers": {"default_prompt_name": "query"}}, "prompt"),
        (MODES["mean"], {"modules": {"no": "list"}}, "no JSON array"),
    ],
)
def test_what_is_not_built_in_aborts_before_a_model_is_loaded(
    tmp_path: Path, pooling: dict[str, Any], files: dict[str, Any], said: str
) -> None:
    with pytest.raises(Abort, match=said):
        FolderEncoder(save(tmp_path / "m", bert, pooling, **files))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", bert, MODES["mean"])
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(Abort, match="safetensors"):
        FolderEncoder(folder)


def test_a_folder_that_asks_for_its_own_code_is_not_run(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", bert, MODES["mean"])
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}, "model_type": "evil"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(Abort, match="cannot be loaded"):
        FolderEncoder(folder).vector("steel")


def test_a_missing_package_aborts_with_its_name(monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path]) -> None:
    import importlib.util

    honest = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else honest(name))
    with pytest.raises(Abort, match="transformers is not installed"):
        FolderEncoder(folders["mean"])
