"""The mean of small models' weights."""

import pytest
import torch
from conftest import doc, refused, result_of

from fairseq_doc.conversion.foreign import dictionary_of, imported_checkpoint, read_model

from .test_foreign import WORDS, Foreign, awd_lstm_lm

# fairseq reads its configuration with hydra's old interface.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def save(path, seed, words=WORDS, **changes):
    """A checkpoint of a small language model; its state."""
    torch.manual_seed(seed)
    torch.save(awd_lstm_lm(Foreign(len(words), [4, 6, 4])), path)
    dictionary, rows = dictionary_of(words)
    dictionary.save("./dict.txt")
    state = imported_checkpoint(read_model(path), dictionary, rows, ".")
    state["cfg"]["model"].update(changes)
    state["extra_state"] = {"train_iterator": {"epoch": seed}}
    state["last_optimizer_state"] = {"momentum": torch.ones(3)}
    torch.save(state, path)
    return state


@pytest.fixture(autouse=True)
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


def test_named_checkpoints_are_averaged_and_the_result_is_a_model():
    states = [save(f"{seed}.pt", seed, input_dropout=seed / 9) for seed in (1, 2, 3)]
    for number, option in enumerate(["doc_activation", "doc_weight_bias"]):
        del states[number]["cfg"]["model"][option]  # as if the option were newer
        torch.save(states[number], f"{number + 1}.pt")
    doc("average", "1.pt", "2.pt", "3.pt", "--output", "mean.pt")
    found = assert_mean("mean.pt", [state["model"] for state in states])
    assert "last_optimizer_state" not in found
    assert found["extra_state"]["train_iterator"] == {"epoch": 3}
    assert found["cfg"]["model"]["input_dropout"] == 3 / 9
    scored = result_of("score", ".", "--path", "mean.pt", stdin=b"the dog")
    assert scored["sentences"][0]["log_prob"] < 0
    assert "mean.pt exists" in refused("average", "1.pt", "2.pt", "--output", "mean.pt")


@pytest.mark.parametrize(
    "option, names",
    [
        ("--last-epochs", ["checkpoint9.pt", "checkpoint10.pt"]),
        ("--last-updates", ["checkpoint_1_90.pt", "checkpoint_2_100.pt"]),
    ],
)
def test_the_last_checkpoints_of_a_folder(folder, option, names):
    for other in ["checkpoint_best.pt", "checkpoint8.pt", "checkpoint_1_80.pt"]:
        (folder / other).write_text("not read")
    models = [save(name, seed)["model"] for seed, name in enumerate(names)]
    found = result_of("average", ".", option, "2", "--output", "mean.pt")
    assert found["checkpoints"] == [f"./{name}" for name in names]
    assert_mean("mean.pt", models)
    assert "got 3" in refused("average", ".", option, "4", "--output", "other.pt")


def test_the_exponential_average_that_was_saved():
    state = save("a.pt", 1)
    assert "--store-ema" in refused("average", "a.pt", "--ema", "--output", "ema.pt")
    ema = state["extra_state"]["ema"] = dict(state["model"])
    shifted = ema["decoder.embedding"] + 0.5
    ema |= {"decoder.embedding": shifted, "decoder.output.weight": shifted}
    torch.save(state, "a.pt")
    doc("average", "a.pt", "--ema", "--output", "ema.pt")
    assert_mean("ema.pt", [ema])


def test_half_precision_is_kept_and_summed_in_a_wider_one():
    state = save("a.pt", 1)
    state["model"]["decoder.output.bias"].fill_(40_000)  # whose sum is infinite in float16
    state["model"] = {
        n: t.half() if t.is_floating_point() else t for n, t in state["model"].items()
    }
    for name in ("a.pt", "b.pt"):
        torch.save(state, name)
    doc("average", "a.pt", "b.pt", "--output", "mean.pt")
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
    save("a.pt", 1)
    save("b.pt", 2, **other)
    message = refused("average", "a.pt", "b.pt", "--output", "mean.pt")
    assert "b.pt: " in message and problem in message
    assert not (folder / "mean.pt").exists()


@pytest.mark.parametrize(
    "words, problem",
    [
        (["a.pt"], "expected several checkpoints"),
        (["a.pt", "a.pt"], "used twice"),
        (["a.pt", "b", "--last-epochs", "2"], "expected one folder"),
        (["a.pt", "--last-epochs", "2"], "a.pt"),
        ([".", "--last-epochs", "2", "--last-updates", "2"], "combined with --last-updates"),
    ],
)
def test_what_is_no_mean_is_refused(words, problem):
    save("a.pt", 1)
    assert problem in refused("average", *words, "--output", "mean.pt")
