"""Options of caches and dynamic evaluation, and what they need before any work."""

from dataclasses import dataclass
from typing import Any

from fairseq.utils import split_paths

from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, progress_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.cache import CacheSettings
from fairseq_doc.evaluation.dynamic import DynamicSettings
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.gradient_statistics import statistics_of
from fairseq_doc.options import group


@dataclass(frozen=True, kw_only=True)
class AdaptationOptions(ProgressOptions, ModelOptions):
    """What evaluation may add to the models. Dynamic evaluation is in float32.

    Raises:
        FairseqDocError: dynamic evaluation in another precision, of a model twice, or with a number of
            files other than that of the models.
    """

    cache: CacheSettings | None = group("cache", switch="window")
    dynamic: DynamicSettings | None = group(
        "dynamic",
        switch="dynamic",
        help="dynamic evaluation: the model learns from each segment after it was scored; in float32",
    )

    def __post_init__(self) -> None:
        if self.dynamic is None:
            return
        if self.matmul_precision not in (None, "float32"):
            raise FairseqDocError(
                "--dynamic computes in float32: expected no --matmul-precision; got "
                f"{self.matmul_precision}"
            )
        object.__setattr__(self, "matmul_precision", "float32")
        models, files = split_paths(self.path), self.statistics_files
        if len(set(models)) != len(models):
            raise FairseqDocError(
                "--dynamic gives every model statistics of its own: expected different models; got "
                f"{self.path}"
            )
        if len(set(files)) != len(models):
            raise FairseqDocError(
                f"--dynamic-statistics: expected {len(models)} different files, one a model; got "
                f"{self.dynamic.statistics}"
            )

    @property
    def statistics_files(self) -> list[str]:
        """Of each model, for dynamic evaluation."""
        assert self.dynamic is not None
        if self.dynamic.statistics is not None:
            return split_paths(self.dynamic.statistics)
        ending = f"{self.dynamic.columns}x{self.dynamic.segment}.npz"
        return [f"{path}.{ending}" for path in split_paths(self.path)]

    def gathered(self, ensemble: Ensemble) -> list[dict[str, Any]]:
        """The statistics of each model; those that are not there are gathered."""
        if self.dynamic is None:
            return []
        pairs = zip(ensemble.models, self.statistics_files, strict=True)
        return [
            statistics_of(
                Ensemble([model], ensemble.task),
                path,
                self.dynamic.gathering,
                progress=progress_of(self),
            )
            for model, path in pairs
        ]
