use super::*;

/// A queue with 2048 frames of which 256 suffice under steady load, and a clock.
struct Run {
    set: WorkingSet,
    now: Duration,
    frames: u32,
}

impl Run {
    fn new() -> Self {
        Self {
            set: WorkingSet::new(2048, 256, Duration::ZERO),
            now: Duration::ZERO,
            frames: 2048,
        }
    }

    fn note(&mut self, waiting: u32) {
        if let Some(frames) = self.set.note(waiting, self.now) {
            assert_ne!(frames, self.frames, "only changes are returned");
            self.frames = frames;
        }
    }

    /// Looks 200 times in 8 ms and finds `waiting` packets each time.
    fn window(&mut self, waiting: u32) {
        for _ in 0..200 {
            self.now += WINDOW / 200;
            self.note(waiting);
        }
    }

    /// Returns after how many windows of this load fewer frames wait.
    fn windows_until_small(&mut self, waiting: u32) -> u32 {
        (1..20_000)
            .find(|_| {
                self.window(waiting);
                self.frames == 256
            })
            .expect("steady load")
    }
}

#[test]
fn steady_load_shrinks_the_working_set_and_a_pause_restores_it() {
    let mut run = Run::new();
    let windows = run.windows_until_small(64);
    assert!(
        (MIN_STEADY_WINDOWS..MIN_STEADY_WINDOWS + 4).contains(&windows),
        "{windows}"
    );
    for _ in 0..1000 {
        run.window(64);
        assert_eq!(run.frames, 256);
    }
    // Looks that find nothing.
    run.window(0);
    run.window(0);
    assert_eq!(run.frames, 2048);
    // The load was steady: a pause proves nothing wrong.
    assert!(run.windows_until_small(64) < MIN_STEADY_WINDOWS + 4);
    // An application that does not look.
    run.now += Duration::from_millis(30);
    run.note(64);
    assert_eq!(run.frames, 2048);
}

#[test]
fn idle_slow_and_bursty_queues_keep_all_frames_ready() {
    let mut run = Run::new();
    for _ in 0..2000 {
        run.window(0);
    }
    for _ in 0..2000 {
        run.window(1);
    }
    for _ in 0..2000 {
        run.window(8);
        run.note(129);
    }
    // Half a second of load in each of the times when load may count as steady, and then a burst.
    assert_eq!(run.frames, 2048);
}

#[test]
fn a_burst_restores_the_working_set_at_once_and_for_longer_each_time() {
    let mut run = Run::new();
    let mut last = 0;
    for _ in 0..6 {
        let windows = run.windows_until_small(64);
        assert!(windows > last * 3 / 2, "{windows} after {last}");
        last = windows;
        run.note(200);
        assert_eq!(run.frames, 2048);
    }
    // As load stays steady, the mistrust wears off.
    for _ in 0..20_000 {
        run.window(64);
    }
    assert_eq!(run.frames, 256);
    run.note(200);
    assert!(run.windows_until_small(64) <= 2 * MIN_STEADY_WINDOWS + 4);
}

#[test]
fn constant_overload_shrinks_the_working_set_and_its_end_restores_it() {
    let mut run = Run::new();
    let windows = run.windows_until_small(2000);
    assert!(windows < MIN_STEADY_WINDOWS + 4, "{windows}");
    for _ in 0..100 {
        run.window(250);
        assert_eq!(run.frames, 256);
    }
    run.note(20);
    assert_eq!(run.frames, 2048);
    // A backlog that comes and goes is no constant overload.
    for round in 0..10_000 {
        run.window(if round % 8 == 0 { 300 } else { 2000 });
        assert_eq!(run.frames, 2048);
    }
}

#[test]
fn a_queue_with_few_frames_keeps_them_all() {
    let mut set = WorkingSet::new(200, 256, Duration::ZERO);
    for ms in 0..10_000 {
        assert_eq!(set.note(64, Duration::from_millis(ms)), None);
    }
    assert!(!set.is_small());
}
