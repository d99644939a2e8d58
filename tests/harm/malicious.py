"""Checkpoints that try to run a call where they are loaded. The call touches a file."""

import argparse
import io
import os
import pickle
import zipfile

import torch

MARKER = "ran"


class Call:
    """Unpickled, it makes a file."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return (os.mkdir, (self.marker,))


class Evaluated:
    """Unpickled, it evaluates Python."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return (eval, (code(self.marker),))


def code(marker):
    """An expression that makes the file."""
    return f"__import__('os').mkdir({str(marker)!r})"


def _saved(state, **settings):
    out = io.BytesIO()
    torch.save(state, out, **settings)
    return out.getvalue()


def whole(state, marker):
    """Nothing but the call."""
    return _saved(Call(marker))


def in_the_model(state, marker):
    """Among the weights."""
    state["model"]["decoder.harmless"] = Call(marker)
    return _saved(state)


def in_the_optimizer(state, marker):
    """In an optimizer state."""
    state["last_optimizer_state"]["param_groups"][0]["harmless"] = Evaluated(marker)
    return _saved(state)


def in_the_settings(state, marker):
    """As ``cfg``."""
    return _saved({**state, "cfg": Call(marker)})


def inside_the_settings(state, marker):
    """Deep in ``cfg``."""
    state["cfg"]["task"]["harmless"] = [{"deeper": Evaluated(marker)}]
    return _saved(state)


def in_the_place(state, marker):
    """In the position of a run in its data."""
    state["extra_state"]["train_iterator"]["harmless"] = Call(marker)
    return _saved(state)


def in_a_namespace(state, marker):
    """In the old form of the settings."""
    state["args"] = argparse.Namespace(task="translation", harmless=Call(marker))
    return _saved(state)


def pickled(state, marker):
    """A bare pickle of protocol 4."""
    return pickle.dumps({**state, "cfg": Call(marker)}, 4)


def old_format(state, marker):
    """torch's format before it was a zip."""
    return _saved({**state, "cfg": Call(marker)}, _use_new_zipfile_serialization=False)


def torch_script(state, marker):
    """A zip that says it is TorchScript, whose loader runs code."""
    content = _saved(state)
    return _rewritten(content, lambda name, data: [(name, data)], [("archive/constants.pkl", b"")])


def _rewritten(content, change, more=()):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            for member, data in change(name, old.read(name)):
                new.writestr(member, data)
        for member, data in more:
            new.writestr(member, data)
    return out.getvalue()


def _two(first, second):
    def change(name, data):
        if not name.endswith("data.pkl"):
            return [(name, data)]
        return [(name, first or data), (name, second or data)]

    return change


def _members_pickle(state):
    with zipfile.ZipFile(io.BytesIO(_saved(state))) as archive:
        return archive.read("archive/data.pkl")


def two_pickles_harmless_first(state, marker):
    """A zip with two data.pkl, the harmless one first."""
    return _rewritten(_saved(state), _two(None, _members_pickle({"cfg": Call(marker)})))


def two_pickles_harmless_last(state, marker):
    """A zip with two data.pkl, the harmless one last."""
    return _rewritten(_saved(state), _two(_members_pickle({"cfg": Call(marker)}), None))


def pickle_in_another_folder(state, marker):
    """A zip with a second folder."""
    evil = _members_pickle({"cfg": Call(marker)})
    return _rewritten(_saved(state), lambda name, data: [(name, data)], [("other/data.pkl", evil)])


def user_folder(state, marker):
    """Settings that name a folder of Python to import."""
    folder = marker.parent / "user_folder"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(f"{code(marker)}\n")
    state["cfg"]["common"]["user_dir"] = str(folder)
    return _saved(state)


def evaluated_setting(state, marker):
    """Another architecture of fairseq, whose settings fairseq evaluates as Python."""
    harmful = f"[({code(marker)}, 1)]"
    old = dict.fromkeys(("decoder_layers", "encoder_layers", "decoder_attention"), harmful)
    arch = "fconv_lm" if "bptt" in state["cfg"]["task"] else "fconv"
    model = {**state["cfg"]["model"], "_name": arch, "arch": arch, **old}
    more = {"dropout": 0.1, "adaptive_softmax_cutoff": None, "criterion": "cross_entropy"}
    more |= {"decoder_out_embed_dim": 8, "decoder_embed_dim": 8, "share_input_output_embed": False}
    more |= {"tokens_per_sample": 20, "max_target_positions": 20, "encoder_embed_dim": 8}
    more |= {"encoder_embed_path": None, "decoder_embed_path": None, "max_source_positions": 99}
    state["cfg"]["model"] = {**model, **more}
    return _saved(state)


def evaluated_optimizer(state, marker):
    """Settings of Adam, which fairseq evaluates."""
    state["cfg"]["optimizer"] = {"_name": "adam", "adam_betas": code(marker)}
    state["cfg"]["generation"]["print_alignment"] = code(marker)
    return _saved(state)


def resolved_setting(state, marker):
    """omegaconf's interpolations and hydra's targets in settings."""
    state["cfg"]["task"]["_target_"] = "os.mkdir"
    state["cfg"]["model"]["_target_"] = "os.mkdir"
    state["cfg"]["task"]["path"] = str(marker)
    state["cfg"]["common"]["tensorboard_logdir"] = "${oc.env:PATH}"
    return _saved(state)


KINDS = (
    whole,
    in_the_model,
    in_the_optimizer,
    in_the_settings,
    inside_the_settings,
    in_the_place,
    in_a_namespace,
    pickled,
    old_format,
    torch_script,
    two_pickles_harmless_first,
    two_pickles_harmless_last,
    pickle_in_another_folder,
    user_folder,
    evaluated_setting,
    evaluated_optimizer,
    resolved_setting,
)
# Those that hold no call in a pickle; a command may use the rest of such a checkpoint.
PLAIN = (user_folder, evaluated_setting, evaluated_optimizer, resolved_setting, torch_script)
