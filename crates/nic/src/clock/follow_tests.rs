use super::{CALIBRATION_NS, Follower, Lost, SPAN_NS};

/// A counter and a clock of which the truth is known: `hz` counts a second, and a clock that is corrected by `ppb`.
struct World {
    hz: u64,
    first_count: u64,
    /// True time in picoseconds.
    now_ps: u64,
    clock_ps: u64,
    ppb: i64,
}

impl World {
    fn new(hz: u64) -> Self {
        Self {
            hz,
            // Wraps during the test.
            first_count: u64::MAX - 1_000_000,
            now_ps: 0,
            clock_ps: 5_000_000,
            ppb: 0,
        }
    }

    fn count(&self) -> u64 {
        let counts = u128::from(self.now_ps) * u128::from(self.hz) / 1_000_000_000_000;
        self.first_count.wrapping_add(u64::try_from(counts).unwrap())
    }

    fn clock_ns(&self) -> u64 {
        self.clock_ps / 1_000
    }

    fn pass(&mut self, ns: u64) {
        let ps = ns * 1_000;
        let corrected = i128::from(ps) * i128::from(1_000_000_000 + self.ppb) / 1_000_000_000;
        self.now_ps += ps;
        self.clock_ps += u64::try_from(corrected).unwrap();
    }

    /// A comparison of 60 ns, in which the clock is read at another place each time.
    fn compare(&mut self, turn: u64) -> (u64, u64, u64) {
        let early = turn * 7 % 60;
        let before = self.count();
        self.pass(early);
        let ns = self.clock_ns();
        self.pass(60 - early);
        (before, ns, self.count())
    }

    fn calibrated(&mut self) -> Follower {
        let mut follower = Follower::idle();
        for turn in 0.. {
            assert_eq!(follower.estimate(self.count()), None, "nothing before it is known");
            let (before, ns, after) = self.compare(turn);
            if let Some(hz) = follower.calibrate(before, ns, after).unwrap() {
                assert!(hz.abs_diff(self.hz) < self.hz / 10_000, "{hz} instead of {}", self.hz);
                return follower;
            }
            self.pass(10_000);
        }
        unreachable!()
    }
}

/// Estimates stay within the bound at every rate of counter and clock, while the clock is corrected one way and the other.
#[test]
fn estimates_are_within_the_bound() {
    for hz in [24_000_000, 1_000_000_000, 2_300_000_000, 5_123_456_789] {
        let mut world = World::new(hz);
        let mut follower = world.calibrated();
        for turn in 0..20_000_u64 {
            world.ppb = [0, 1_000_000, -1_000_000, 500_000][usize::try_from(turn / 100 % 4).unwrap()];
            world.pass(1 + turn * 131 % 40_000);
            match follower.estimate(world.count()) {
                Some(ns) => {
                    let off = ns.abs_diff(world.clock_ns());
                    // A count of a slow counter is longer than the bound is exact.
                    let allowed = follower.bound_ns() + 1_000_000_000 / hz;
                    assert!(off <= allowed, "{hz} Hz, turn {turn}: {off} ns off, {allowed} allowed");
                }
                None => {
                    let (before, ns, after) = world.compare(turn);
                    follower.observe(before, ns, after).unwrap();
                }
            }
        }
        assert!(follower.checks() > 1_000, "{}", follower.checks());
        assert!(follower.bound_ns() < 400, "{}", follower.bound_ns());
        assert!(follower.worst_ns() <= follower.bound_ns(), "{follower:?}");
        assert!(
            follower.worst_ns() > 20,
            "corrections of the clock do show: {follower:?}"
        );
    }
}

#[test]
fn after_a_span_a_comparison_is_due() {
    let mut world = World::new(2_300_000_000);
    let follower = world.calibrated();
    world.pass(SPAN_NS - 1_000);
    assert!(follower.estimate(world.count()).is_some());
    world.pass(2_000);
    assert_eq!(follower.estimate(world.count()), None);
    // Also for a counter that went back.
    assert_eq!(follower.estimate(world.first_count), None);
}

#[test]
fn a_pause_of_any_length_is_no_fault() {
    let mut world = World::new(2_300_000_000);
    let mut follower = world.calibrated();
    for (turn, pause) in [1_000_000, 3_000_000_000, 500_000, 86_400_000_000_000, 200_000]
        .into_iter()
        .enumerate()
    {
        world.ppb = if turn % 2 == 0 { 400_000 } else { -400_000 };
        world.pass(pause);
        let (before, ns, after) = world.compare(turn as u64);
        follower.observe(before, ns, after).unwrap();
        assert!(follower.estimate(world.count()).is_some());
    }
    assert!(follower.bound_ns() < 400, "{}", follower.bound_ns());
}

/// A comparison that took long says little: the bound does not grow with it.
#[test]
fn an_interrupted_comparison_costs_no_exactness() {
    let mut world = World::new(2_300_000_000);
    let mut follower = world.calibrated();
    let bound = follower.bound_ns();
    for turn in 0..200 {
        world.pass(SPAN_NS);
        let before = world.count();
        let ns = world.clock_ns();
        world.pass(if turn % 3 == 0 { 40_000 } else { 50 });
        follower.observe(before, ns, world.count()).unwrap();
        let shown = follower.estimate(world.count()).unwrap();
        assert!(
            shown.abs_diff(world.clock_ns()) <= follower.bound_ns(),
            "turn {turn}: {follower:?}"
        );
    }
    assert!(
        follower.bound_ns() < bound + 400,
        "{bound}, then {}",
        follower.bound_ns()
    );
}

#[test]
fn a_counter_that_goes_wrong_is_noticed() {
    // Another rate, as after a move to another machine; a jump ahead; a jump back; a clock that stands still.
    let wrong: [fn(&mut World); 4] = [
        |world| world.hz += world.hz / 100,
        |world| world.first_count = world.first_count.wrapping_add(23_000),
        |world| world.first_count = world.first_count.wrapping_sub(23_000),
        |world| world.clock_ps -= 50_000_000,
    ];
    for (which, change) in wrong.into_iter().enumerate() {
        let mut world = World::new(2_300_000_000);
        let mut follower = world.calibrated();
        world.pass(SPAN_NS);
        let (before, ns, after) = world.compare(1);
        follower.observe(before, ns, after).unwrap();
        change(&mut world);
        world.pass(SPAN_NS);
        let (before, ns, after) = world.compare(2);
        let lost = follower.observe(before, ns, after).unwrap_err();
        assert!(
            matches!(lost, Lost::Apart { off_ns, allowed_ns } if off_ns > allowed_ns),
            "{which}: {lost:?}"
        );
        assert_eq!(follower.estimate(world.count()), None, "{which}");
    }
}

#[test]
fn what_is_no_counter_is_refused() {
    let calibrate = |first: u64, second: u64| {
        let mut follower = Follower::idle();
        assert_eq!(follower.calibrate(first, 0, first), Ok(None));
        follower.calibrate(second, CALIBRATION_NS, second)
    };
    assert_eq!(calibrate(7, 7), Err(Lost::NoRate), "stands still");
    assert_eq!(calibrate(7, 6), Err(Lost::NoRate), "goes back");
    assert_eq!(calibrate(0, 2_000), Err(Lost::NoRate), "1 MHz");
    assert_eq!(calibrate(0, u64::MAX / 4), Err(Lost::NoRate), "faster than light");
    assert!(calibrate(0, 4_600_000).unwrap().is_some());
}

/// A calibration whose first reading was interrupted goes on for as long as that matters.
#[test]
fn an_interrupted_calibration_takes_longer() {
    let mut world = World::new(1_000_000_000);
    let mut follower = Follower::idle();
    let before = world.count();
    let ns = world.clock_ns();
    world.pass(20_000);
    assert_eq!(follower.calibrate(before, ns, world.count()), Ok(None));
    world.pass(CALIBRATION_NS);
    let (before, ns, after) = world.compare(0);
    assert_eq!(
        follower.calibrate(before, ns, after),
        Ok(None),
        "10 µs of 2 ms are too much"
    );
    world.pass(10 * CALIBRATION_NS);
    let (before, ns, after) = world.compare(0);
    assert!(follower.calibrate(before, ns, after).unwrap().is_some());
}
