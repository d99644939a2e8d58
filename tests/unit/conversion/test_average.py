"""The mean of small models' weights."""

import pytest
import torch
from conftest import doc, refused, result_of

from fairseq_doc.conversion.foreign import dictionary_of, imported_checkpoint, recognise

from .test_foreign import WORDS, Foreign, awd_lstm_lm


def save(path, seed, words=WORDS, ema=None, **changes):
    """A checkpoint of a small language model, and its weights."""
    torch.manual_seed(seed)
    model = recognise("x", awd_lstm_lm(Foreign(len(words), [4, 6, 4])))
    state = imported_checkpoint(model, *dictionary_of(words), str(path.parent))
    state["cfg"]["model"].update(changes)
    state["extra_state"] = {"train_iterator": {"epoch": seed}}
    if ema is not None:
        moved: dict[int, torch.Tensor] = {}  # a tied matrix stays one
        state["extra_state"]["ema"] = {
            name: moved.setdefault(tensor.data_ptr(), tensor + ema)
            if tensor.is_floating_point()
            else tensor
            for name, tensor in state["model"].items()
        }
    state["last_optimizer_state"] = {"momentum": torch.ones(3)}
    torch.save(state, path)
    dictionary_of(words)[0].save(str(path.parent / "dict.txt"))
    return state["model"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_mean(path, models):
    found = torch.load(path)
    for name, tensor in found["model"].items():
        own = [model[name] for model in models]
        mean = torch.stack(own).double().mean(0).to(own[0].dtype)
        assert torch.equal(tensor, mean if mean.is_floating_point() else own[0]), name
    embedding, matrix = (found["model"][f"decoder.{x}"] for x in ("embedding", "output.weight"))
    assert embedding.data_ptr() == matrix.data_ptr()
    return found


def test_named_checkpoints_are_averaged_and_the_result_is_a_model(folder):
    models = [save(folder / f"{seed}.pt", seed, input_dropout=seed / 9) for seed in (1, 2, 3)]
    doc("average", "1.pt", "2.pt", "3.pt", "--output", "mean.pt")
    found = assert_mean("mean.pt", models)
    assert "last_optimizer_state" not in found
    assert found["extra_state"]["train_iterator"] == {"epoch": 3}
    assert found["cfg"]["model"]["input_dropout"] == 3 / 9
    scored = result_of("score", folder, "--path", "mean.pt", stdin=b"the dog")
    assert scored["sentences"][0]["log_prob"] < 0
    assert "mean.pt exists" in refused("average", "1.pt", "2.pt", "--output", "mean.pt")


@pytest.mark.parametrize(
    "options, names",
    [
        (["--last-epochs", "2"], ["checkpoint9.pt", "checkpoint10.pt"]),
        (["--last-updates", "2"], ["checkpoint_1_90.pt", "checkpoint_2_100.pt"]),
    ],
)
def test_the_last_checkpoints_of_a_folder(folder, options, names):
    others = ["checkpoint_best.pt", "checkpoint8.pt", "checkpoint_1_80.pt"]
    for name in others:
        (folder / name).write_text("not read")
    models = [save(folder / name, seed) for seed, name in enumerate(names)]
    found = result_of("average", ".", *options, "--output", "mean.pt")
    assert found["checkpoints"] == [f"./{name}" for name in names]
    assert_mean("mean.pt", models)
    assert "got 3" in refused("average", ".", options[0], "4", "--output", "other.pt")


def test_the_exponential_average_that_was_saved(folder):
    model = save(folder / "a.pt", 1, ema=0.5)
    doc("average", "a.pt", "--ema", "--output", "ema.pt")
    shifted = {n: t + 0.5 if t.is_floating_point() else t for n, t in model.items()}
    assert_mean("ema.pt", [shifted])
    save(folder / "b.pt", 1)
    assert "--store-ema" in refused("average", "b.pt", "--ema", "--output", "other.pt")


def test_half_precision_is_kept_and_summed_in_a_wider_one(folder):
    for number in range(3):
        model = save(folder / f"{number}.pt", 1)
        state = torch.load(folder / f"{number}.pt")
        state["model"] = {n: t.half() if t.is_floating_point() else t for n, t in model.items()}
        state["model"]["decoder.output.bias"].fill_(40_000)  # whose sum is infinite in float16
        torch.save(state, folder / f"{number}.pt")
    doc("average", "0.pt", "1.pt", "2.pt", "--output", "mean.pt")
    bias = torch.load("mean.pt")["model"]["decoder.output.bias"]
    assert bias.dtype == torch.float16 and (bias == 40_000).all()


@pytest.mark.parametrize(
    "other, problem",
    [
        ({"words": [*WORDS, "more"]}, "got decoder."),
        ({"words": [*WORDS[:-1], "more"]}, "dictionary_checksum"),
        ({"doc_activation": "linear"}, "doc_activation linear"),
    ],
)
def test_other_models_are_refused(folder, other, problem):
    save(folder / "a.pt", 1)
    save(folder / "b.pt", 2, **other)
    message = refused("average", "a.pt", "b.pt", "--output", "mean.pt")
    assert "b.pt: " in message and problem in message
    assert not (folder / "mean.pt").exists()


@pytest.mark.parametrize("words", [["a.pt"], ["a.pt", "a.pt"], ["a.pt", "b", "--last-epochs", "2"]])
def test_what_is_no_mean_is_refused(folder, words):
    save(folder / "a.pt", 1)
    assert refused("average", *words, "--output", "mean.pt")
