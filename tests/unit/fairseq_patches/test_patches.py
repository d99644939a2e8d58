from pathlib import Path

from fairseq_doc import fairseq_patches


def test_the_list_names_every_patch():
    folder = Path(fairseq_patches.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "wrapping"}
    named = {patch.__name__.rpartition(".")[2] for patch in fairseq_patches.PATCHES}
    assert named == files | {"fairseq_warnings", "interruptions"}  # which import no fairseq


def test_every_patch_is_applied_once(monkeypatch):
    applied = []
    for patch in fairseq_patches.PATCHES:
        monkeypatch.setattr(patch, "apply", lambda patch=patch: applied.append(patch))
    fairseq_patches.apply_all.__wrapped__()
    assert applied == list(fairseq_patches.PATCHES)
