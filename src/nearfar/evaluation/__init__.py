"""Evaluation: metrics on arrays, reports, and a model on rows of any type."""

from nearfar.evaluation.classification import ClassReport, class_report, most_likely
from nearfar.evaluation.clustering import ClusterReport, cluster_report
from nearfar.evaluation.evaluators import EvaluationRows, Report, Truth, evaluate, report_on
from nearfar.evaluation.geometry import (
    alignment,
    anisotropy,
    effective_rank,
    geometry_report,
    layer_anisotropy,
    uniformity,
)
from nearfar.evaluation.inference import classify, embed_table, pair_scores, score_pairs
from nearfar.evaluation.multi_label import MultiLabelReport, multi_label_report
from nearfar.evaluation.pairs import PairReport, ScoreReport, best_threshold, pair_report, score_report
from nearfar.evaluation.ranking_metrics import RankingReport, ranking_report
from nearfar.evaluation.search import Search, evaluate_retrieval, top_documents
from nearfar.evaluation.suites import SetScore, SuiteReport, SuiteSet, evaluate_suite, read_suite
from nearfar.evaluation.whitening_maps import Affine, AllButTheTop, Whitening

__all__ = [
    "Affine", "AllButTheTop", "ClassReport", "ClusterReport", "EvaluationRows", "MultiLabelReport", "PairReport",
    "RankingReport", "Report", "ScoreReport", "Search", "SetScore", "SuiteReport", "SuiteSet", "Truth", "Whitening",
    "alignment", "anisotropy", "best_threshold", "class_report", "classify", "cluster_report", "effective_rank",
    "embed_table", "evaluate", "evaluate_retrieval", "evaluate_suite", "geometry_report", "layer_anisotropy",
    "most_likely", "multi_label_report", "pair_report", "pair_scores", "ranking_report", "read_suite", "report_on",
    "score_pairs", "score_report", "top_documents", "uniformity",
]  # fmt: skip
