"""Checkpoints that try to run a call where they are loaded. The call touches a file."""

import argparse
import io
import os
import pickle

import torch
from harm.mutilations import members_of, zipped

MARKER = "ran"


class Call:
    """Unpickled, it makes a file, or calls another function."""

    def __init__(self, argument, function=os.mkdir):
        self.call = (function, (str(argument),))

    def __reduce__(self):
        return self.call


def evaluated(marker):
    """Unpickled, it evaluates Python."""
    return Call(code(marker), eval)


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


def _at(name, keys, value):
    """The kind that has ``value(marker)`` at these keys of the checkpoint."""

    def kind(state, marker):
        inner = state
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value(marker)
        return _saved(state)

    kind.__name__ = name
    return kind


PLACES = [
    _at("in_the_model", ["model", "decoder.harmless"], Call),
    _at("in_the_optimizer", ["last_optimizer_state", "param_groups", 0, "harmless"], evaluated),
    _at("in_the_settings", ["cfg"], Call),
    _at("inside_the_settings", ["cfg", "task", "harmless"], lambda m: [{"deeper": evaluated(m)}]),
    _at("in_the_position", ["extra_state", "train_iterator", "harmless"], Call),
    _at("in_a_namespace", ["args"], lambda m: argparse.Namespace(task="t", harmless=Call(m))),
]


def pickled(state, marker):
    """A bare pickle of protocol 4."""
    return pickle.dumps({**state, "cfg": Call(marker)}, 4)


def old_format(state, marker):
    """torch's format before it was a zip."""
    return _saved({**state, "cfg": Call(marker)}, _use_new_zipfile_serialization=False)


def torch_script(state, marker):
    """A zip that says it is TorchScript, whose loader runs code."""
    return zipped([*members_of(_saved(state)), ("archive/constants.pkl", b"")])


def _two_pickles(name, harmless_first):
    """A zip with two data.pkl."""

    def kind(state, marker):
        evil, found = members_of(_saved({"cfg": Call(marker)}))[0][1], []
        for member, data in members_of(_saved(state)):
            both = [data, evil] if harmless_first else [evil, data]
            found += [(member, d) for d in (both if member.endswith("data.pkl") else [data])]
        return zipped(found)

    kind.__name__ = name
    return kind


two_pickles_harmless_first = _two_pickles("two_pickles_harmless_first", True)
two_pickles_harmless_last = _two_pickles("two_pickles_harmless_last", False)


def pickle_in_another_folder(state, marker):
    """A zip with a second folder."""
    ((_, evil), *_) = members_of(_saved({"cfg": Call(marker)}))
    return zipped([*members_of(_saved(state)), ("other/data.pkl", evil)])


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
    *PLACES,
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
