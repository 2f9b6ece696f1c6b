use super::*;

/// What a simulated machine answers, and how: a drift that all share, noise of each turn, and now and then a neighbour.
struct Machine {
    random: SplitMix64,
    noise: f64,
    /// One turn in so many is disturbed, and then slow by a half.
    disturbed_one_in: u64,
    turns: u64,
}

impl Machine {
    fn new(seed: u64, noise: f64) -> Self {
        Self {
            random: SplitMix64(seed),
            noise,
            disturbed_one_in: u64::MAX,
            turns: 0,
        }
    }

    /// A normal variable: twelve even ones less six.
    fn normal(&mut self) -> f64 {
        (0..12)
            .map(|_| self.random.below(1 << 24) as f64 / (1u64 << 24) as f64)
            .sum::<f64>()
            - 6.0
    }

    fn measure(&mut self, truth: f64) -> Round {
        self.turns += 1;
        // Half as fast again, and back, over 200 turns.
        let drift = 1.0 + 0.25 * (self.turns as f64 / 100.0).sin();
        let value = truth * drift * (1.0 + self.noise * self.normal());
        if self.random.below(self.disturbed_one_in) == 0 {
            return Round {
                value: value / 2.0,
                steal: 0.3,
            };
        }
        Round { value, steal: 0.0 }
    }
}

/// batch (0, +20 %, +20.5 %), wait (0, −30 %), colour (nothing).
fn design() -> Design {
    Design::new(vec![
        Knob::new("batch", ["16", "64", "256"]),
        Knob::new("wait", ["spin", "poll"]),
        Knob::new("colour", ["red", "blue"]),
    ])
    .unwrap()
}

fn truth(levels: &[usize]) -> f64 {
    1e6 * [1.0, 1.2, 1.205][levels[0]] * [1.0, 0.7][levels[1]]
}

fn plan(method: Method, rounds: u32) -> Plan {
    Plan {
        method,
        rounds,
        confirm: 12,
        until: None,
    }
}

fn drive(mut sweep: Sweep, mut measure: impl FnMut(&[usize]) -> Option<Round>) -> Sweep {
    while let Some(one) = sweep.wanted() {
        let levels = sweep.design().levels(one).to_vec();
        sweep.record(measure(&levels));
    }
    sweep
}

#[test]
fn all_configurations_and_the_base_first() {
    let design = design();
    assert_eq!(design.len(), 12);
    assert_eq!(design.levels(0), [0, 0, 0]);
    assert_eq!(design.levels(11), [2, 1, 1]);
    assert_eq!(design.moved(11), 3);
    for one in 0..design.len() {
        let mut expected = design.levels(one).to_vec();
        expected[1] = 0;
        assert_eq!(design.levels(design.at_base(one, 1)), expected);
    }
}

#[test]
fn designs_that_make_no_sense() {
    let error = |knobs| Design::new(knobs).unwrap_err().to_string();
    assert!(error(vec![]).contains("no knob"));
    assert!(error(vec![Knob::new("a", ["1"])]).contains("fewer than two levels"));
    assert!(error(vec![Knob::new("a", ["1", "1"])]).contains("level 1 twice"));
    assert!(error(vec![Knob::new("a", ["1", "2"]), Knob::new("a", ["3", "4"])]).contains("there twice"));
    let many = (0..13).map(|n| Knob::new(format!("k{n}"), ["0", "1"])).collect();
    assert!(error(many).contains("more than 4096"));
}

#[test]
fn each_round_has_each_configuration_once_in_another_order() {
    let mut sweep = Sweep::new(design(), plan(Method::Grid, 3), Better::More);
    let mut orders = Vec::new();
    for _ in 0..3 {
        let mut order = Vec::new();
        for _ in 0..12 {
            let one = sweep.wanted().unwrap();
            order.push(one);
            sweep.record(Some(Round {
                value: truth(sweep.design().levels(one)),
                steal: 0.0,
            }));
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..12).collect::<Vec<_>>());
        orders.push(order);
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    assert_eq!(plan(Method::Grid, 3).turns(12), 36 + 24);
}

#[test]
fn a_grid_finds_what_matters_and_the_simpler_of_equals() {
    let mut machine = Machine::new(11, 0.03);
    let sweep = Sweep::new(design(), plan(Method::Grid, 15), Better::More);
    let sweep = drive(sweep, |levels| Some(machine.measure(truth(levels))));
    let found = sweep.found(0.05);
    let verdicts: Vec<Verdict> = found.effects.iter().map(|effect| effect.verdict).collect();
    assert_eq!(
        verdicts,
        [Verdict::Matters, Verdict::Matters, Verdict::DoesNotMatter],
        "{:#?}",
        found.effects
    );
    let ratio = |knob: usize, level: usize| found.effects[knob].levels[level].ratio.unwrap();
    for (knob, level, true_ratio) in [(0, 1, 1.2), (0, 2, 1.205), (1, 1, 0.7), (2, 1, 1.0)] {
        let ratio = ratio(knob, level);
        assert!(
            ratio.low.unwrap() <= true_ratio && true_ratio <= ratio.high.unwrap(),
            "{knob} {level}: {ratio:?}"
        );
    }
    // Four levels are compared with their bases.
    assert!((found.confidence - (1.0 - 0.05 / 4.0)).abs() < 1e-12);
    // Spinning and red stay, and batch moved: 64 and 256 differ by less than can be told.
    let best = sweep.design().levels(found.best);
    assert!(best[0] > 0 && best[1..] == [0, 0], "{best:?}");
    let confirmed = found.confirmed.unwrap();
    assert!(
        confirmed.low.unwrap() > 1.1 && confirmed.high.unwrap() < 1.3,
        "{confirmed:?}"
    );
    assert_eq!(confirmed.rounds_used, 12);
}

#[test]
fn a_time_is_better_when_it_is_less() {
    let mut machine = Machine::new(5, 0.02);
    let sweep = Sweep::new(design(), plan(Method::Grid, 12), Better::Less);
    let found_on = drive(sweep, |levels| Some(machine.measure(truth(levels))));
    let found = found_on.found(0.05);
    assert_eq!(found_on.design().levels(found.best), [0, 1, 0]);
    assert!(found.confirmed.unwrap().high.unwrap() < 0.8);
}

#[test]
fn halving_finds_it_with_fewer_turns() {
    let knobs = vec![
        Knob::new("a", ["0", "1", "2", "3"]),
        Knob::new("b", ["0", "1", "2", "3"]),
        Knob::new("c", ["0", "1"]),
    ];
    // The best is 3, 2, 1, by two parts of which each helps by itself.
    let truth = |levels: &[usize]| {
        1e6 * [1.0, 1.05, 1.1, 1.3][levels[0]] * [1.0, 1.1, 1.25, 1.1][levels[1]] * [1.0, 1.15][levels[2]]
    };
    let design = Design::new(knobs).unwrap();
    let mut machine = Machine::new(23, 0.03);
    let sweep = Sweep::new(design, plan(Method::Halving, 3), Better::More);
    let sweep = drive(sweep, |levels| Some(machine.measure(truth(levels))));
    let found = sweep.found(0.05);
    assert_eq!(sweep.design().levels(found.best), [3, 2, 1]);
    // 32·3 + 17·6 + 9·12 + 5·24 + 3·48, and 2·12 to confirm.
    assert_eq!(machine.turns, 96 + 102 + 108 + 120 + 144 + 24);
    assert_eq!(plan(Method::Halving, 3).turns(32), machine.turns);
    assert!(machine.turns < plan(Method::Grid, 48).turns(32) / 2);
    // A good one is known better than a bad one.
    assert!(found.standings[found.best].rounds.len() == 93 && found.standings[1].rounds.len() == 3);
}

#[test]
fn where_nothing_helps_the_base_stays() {
    // 40 sweeps over knobs that do nothing: the base stays in nearly all of them, though the best of twelve always looks better.
    let mut moved = 0;
    let (mut matters, mut lucky) = (0, 0);
    for seed in 0..40 {
        let mut machine = Machine::new(seed, 0.04);
        let sweep = Sweep::new(design(), plan(Method::Grid, 10), Better::More);
        let sweep = drive(sweep, |_| Some(machine.measure(1e6)));
        let found = sweep.found(0.05);
        moved += usize::from(found.best != 0);
        lucky += usize::from(found.chosen != 0);
        matters += found
            .effects
            .iter()
            .filter(|effect| effect.verdict == Verdict::Matters)
            .count();
    }
    println!("{lucky} of 40 chose another than the base, {moved} kept it; {matters} knobs of 120 seemed to matter");
    // One in twenty sweeps may have a knob that seems to matter: 2 expected, 7 would be once in 200.
    assert!(matters <= 6, "{matters} knobs of 120 matter that do nothing");
    assert!(moved <= 6 && moved < lucky.max(1), "{moved} of 40, {lucky} chosen");
}

#[test]
fn intervals_of_all_knobs_together_hold_nineteen_times_in_twenty() {
    let trials = 200;
    let mut all = 0;
    for seed in 0..trials {
        let mut machine = Machine::new(1_000 + seed, 0.05);
        let sweep = Sweep::new(design(), plan(Method::Grid, 12), Better::More);
        let sweep = drive(sweep, |levels| Some(machine.measure(truth(levels))));
        let found = sweep.found(0.05);
        let holds = |knob: usize, level: usize, truth: f64| {
            let ratio = found.effects[knob].levels[level].ratio.unwrap();
            ratio.low.unwrap() <= truth && truth <= ratio.high.unwrap()
        };
        all += u32::from(holds(0, 1, 1.2) && holds(0, 2, 1.205) && holds(1, 1, 0.7) && holds(2, 1, 1.0));
    }
    println!("all four intervals hold in {all} of {trials} sweeps");
    assert!(all >= 185, "{all} of {trials}");
}

#[test]
fn disturbed_turns_are_left_out() {
    let mut machine = Machine::new(17, 0.02);
    machine.disturbed_one_in = 6;
    let sweep = Sweep::new(design(), plan(Method::Grid, 15), Better::More);
    let sweep = drive(sweep, |levels| Some(machine.measure(truth(levels))));
    let found = sweep.found(0.05);
    assert_eq!(found.effects[2].verdict, Verdict::DoesNotMatter);
    assert!(sweep.design().levels(found.best)[0] > 0);
    let left_out: usize = found
        .standings
        .iter()
        .filter_map(|one| Some(one.figure?.rounds_left_out))
        .sum();
    assert!(left_out > 10, "{left_out}");
    for standing in &found.standings {
        // None of the halved ones is in: drift, and three times the noise.
        let figure = standing.figure.unwrap();
        assert!(
            figure.min > figure.median * 0.55 && figure.max < figure.median * 1.7,
            "{figure:?}"
        );
    }
    // All disturbed: they count, and the result is invalid.
    let sweep = Sweep::new(design(), plan(Method::Grid, 8), Better::More);
    let sweep = drive(sweep, |_| Some(Round { value: 1.0, steal: 0.5 }));
    let found = sweep.found(0.05);
    assert_eq!((found.best, found.confirmed), (0, None));
    let verdicts = found.effects.iter().map(|effect| effect.verdict);
    assert!(verdicts.into_iter().all(|verdict| verdict == Verdict::DoesNotMatter));
    let medians = found.standings.iter().map(|one| one.figure.map(|figure| figure.median));
    assert!(medians.into_iter().all(|median| median == Some(1.0)));
}

#[test]
fn too_few_rounds_tell_nothing() {
    let sweep = Sweep::new(design(), plan(Method::Grid, 4), Better::More);
    let sweep = drive(sweep, |levels| {
        Some(Round {
            value: truth(levels),
            steal: 0.0,
        })
    });
    let found = sweep.found(0.05);
    assert!(found.effects.iter().all(|effect| effect.verdict == Verdict::CannotTell));
    assert_eq!(
        found.effects[0].levels[1]
            .ratio
            .map(|ratio| (ratio.low, ratio.rounds_used)),
        Some((None, 4))
    );
    assert_eq!(found.best, 0);
}

#[test]
fn configurations_that_fail_have_no_further_turn() {
    let mut failed = 0;
    let sweep = Sweep::new(design(), plan(Method::Grid, 8), Better::More);
    let sweep = drive(sweep, |levels| match levels[0] {
        2 => {
            failed += 1;
            None
        }
        _ => Some(Round {
            value: truth(levels),
            steal: 0.0,
        }),
    });
    let found = sweep.found(0.05);
    // Four of them, twice each.
    assert_eq!(failed, 8);
    assert!(sweep.is_given_up(11) && !sweep.is_given_up(0));
    assert_eq!(found.effects[0].levels[2].ratio, None);
    assert_eq!(found.effects[0].verdict, Verdict::Matters);
    assert_eq!(sweep.design().levels(found.best), [1, 0, 0]);
    // The base itself: nothing can be compared.
    let mut turns = 0;
    let sweep = Sweep::new(design(), plan(Method::Grid, 8), Better::More);
    let sweep = drive(sweep, |levels| {
        turns += 1;
        (levels != [0, 0, 0]).then_some(Round { value: 1.0, steal: 0.0 })
    });
    assert!(sweep.is_given_up(0) && turns == 24, "{turns}");
}

#[test]
fn it_can_be_ended_at_any_time() {
    let mut sweep = Sweep::new(design(), plan(Method::Grid, 100), Better::More);
    let quiet = |value| Some(Round { value, steal: 0.0 });
    for _ in 0..12 * 7 + 5 {
        let one = sweep.wanted().unwrap();
        let value = truth(sweep.design().levels(one));
        sweep.record(quiet(value));
    }
    sweep.end_race();
    assert_eq!(sweep.progress(), (9, true));
    let sweep = drive(sweep, |levels| quiet(truth(levels)));
    let found = sweep.found(0.05);
    assert_eq!(sweep.design().levels(found.best), [2, 0, 0]);
    assert_eq!(found.confirmed.unwrap().rounds_used, 12);
}

#[test]
fn confirming_ends_when_it_is_known_well_enough() {
    let mut machine = Machine::new(3, 0.01);
    let plan = Plan {
        confirm: 200,
        until: Some(UntilWidth::new(0.02).unwrap()),
        ..plan(Method::Grid, 8)
    };
    let sweep = Sweep::new(design(), plan, Better::More);
    let found = drive(sweep, |levels| Some(machine.measure(truth(levels)))).found(0.05);
    let confirmed = found.confirmed.unwrap();
    assert!(confirmed.width().unwrap() < 0.02, "{confirmed:?}");
    assert!(
        (crate::precision::LEAST_ROUNDS..100).contains(&confirmed.rounds_used),
        "{confirmed:?}"
    );
}
