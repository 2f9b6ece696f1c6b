# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Answers questions about loads and searches with the MLRsearch of PyPI: one JSON document a line, one line back."""

import json
import sys

import MLRsearch
from MLRsearch.target_stat import TargetStat


class Goal:
    """What TargetStat looks at of a target."""

    def __init__(self, goal):
        self.loss_ratio = goal["loss_ratio"]
        self.exceed_ratio = goal["exceed_ratio"]
        self.trial_duration = goal["final_trial"]
        self.duration_sum = goal["duration_sum"]


def trial(load, duration, intended, lost):
    return MLRsearch.MeasurementResult(
        intended_duration=duration,
        intended_load=load,
        intended_count=intended,
        offered_count=intended,
        loss_count=lost,
    )


def classify(question):
    stat = TargetStat(Goal(question["goal"]))
    for duration, intended, lost in question["trials"]:
        stat.add(trial(1.0, duration, intended, lost))
    optimistic, pessimistic = stat.estimates()
    decided = "undecided"
    if optimistic == pessimistic:
        decided = "lower" if optimistic else "upper"
    return {"class": decided, "loss_ratio": stat.pessimistic_loss_ratio}


class Device(MLRsearch.AbstractMeasurer):
    """Loses what is over its capacity, and a share of all."""

    def __init__(self, capacity, floor):
        self.capacity = capacity
        self.floor = floor
        self.seconds = 0.0

    def measure(self, intended_duration, intended_load):
        self.seconds += intended_duration
        intended = int(intended_load * intended_duration)
        through = int(min(intended_load, self.capacity) * intended_duration)
        return trial(intended_load, intended_duration, intended, intended - int(through * (1.0 - self.floor)))


def search(question):
    config = MLRsearch.Config()
    config.goals = [
        MLRsearch.SearchGoal(
            loss_ratio=goal["loss_ratio"],
            exceed_ratio=goal["exceed_ratio"],
            relative_width=goal["width"],
            initial_trial_duration=goal["initial_trial"],
            final_trial_duration=goal["final_trial"],
            duration_sum=goal["duration_sum"],
            fail_fast=False,
        )
        for goal in question["goals"]
    ]
    config.min_load = question["min"]
    config.max_load = question["max"]
    config.warmup_duration = None
    device = Device(question["capacity"], question["floor"])
    found = MLRsearch.MultipleLossRatioSearch(config).search(device, debug=lambda line: None)
    bounds = []
    for goal in config.goals:
        result = found[goal]
        lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
        bounds.append(
            {
                "lower": float(lower) if lower else None,
                "upper": float(upper) if upper else None,
                "throughput": float(result.conditional_throughput) if lower else None,
            }
        )
    return {"bounds": bounds, "seconds": device.seconds}


for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps(search(question) if "goals" in question else classify(question)), flush=True)
