"""Weights to scores: metrics on arrays, and tasks that put a model to the test."""

from nearfar.evaluation.classification import classify, evaluate_classes
from nearfar.evaluation.evaluators import EvaluationRows, Report, Search, Truth, evaluate, report_on
from nearfar.evaluation.geometry import (
    CosineHistogram,
    GeometryReport,
    Uniformity,
    alignment,
    anisotropy,
    cosine_counts,
    effective_rank,
    geometry_report,
    uniformity,
)
from nearfar.evaluation.layers import layer_anisotropy
from nearfar.evaluation.metrics import ClassReport, class_report, most_likely
from nearfar.evaluation.pairs import PairReport, ScoreReport, best_threshold, pair_report, score_report
from nearfar.evaluation.ranking_metrics import RankingReport, ranking_report
from nearfar.evaluation.search import top_documents
from nearfar.evaluation.similarity import (
    embed_table,
    evaluate_pairs,
    evaluate_ranking,
    evaluate_retrieval,
    evaluate_scores,
    pair_scores,
    score_pairs,
)
from nearfar.evaluation.suites import SetScore, SuiteReport, SuiteSet, evaluate_suite, read_suite
from nearfar.evaluation.triplets import TripletReport, evaluate_triplets, triplet_report
from nearfar.evaluation.whitening_maps import Affine, AllButTheTop, Whitening

__all__ = [
    "Affine", "AllButTheTop", "ClassReport", "CosineHistogram", "EvaluationRows", "GeometryReport", "PairReport",
    "RankingReport", "Report", "ScoreReport", "Search", "SetScore", "SuiteReport", "SuiteSet", "TripletReport", "Truth",
    "Uniformity", "Whitening", "alignment", "anisotropy", "best_threshold", "class_report", "classify", "cosine_counts",
    "effective_rank", "embed_table", "evaluate", "evaluate_classes", "evaluate_pairs", "evaluate_ranking",
    "evaluate_retrieval", "evaluate_scores", "evaluate_suite", "evaluate_triplets", "geometry_report",
    "layer_anisotropy", "most_likely", "pair_report", "pair_scores", "ranking_report", "read_suite", "report_on",
    "score_pairs", "score_report", "top_documents", "triplet_report", "uniformity",
]  # fmt: skip
