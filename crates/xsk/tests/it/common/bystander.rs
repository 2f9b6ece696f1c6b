//! How long the machine itself kept everybody waiting.
//!
//! A test of how soon something recovers runs beside others, and with them on machines that have too few processors. What
//! concerns links also waits for the one lock of the kernel's for them (`rtnl`), which the end of a namespace alone can hold
//! for a second. So somebody does next to nothing all the time, and what that takes too long is nobody's fault.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringside_netlab::End;
use ringside_netlab::testing::{Off, expect};
use ringside_nic::Interface;

const PAUSE: Duration = Duration::from_millis(5);

/// Takes the kernel's lock for links every few milliseconds, for no reason.
pub struct Bystander {
    stop: Arc<AtomicBool>,
    turns: Arc<Mutex<Turns>>,
    thread: Option<JoinHandle<()>>,
    noted: Mutex<Vec<String>>,
}

struct Turns {
    /// When the present one began.
    began: Instant,
    /// When one ended that took longer than it should, and by how much.
    late: Vec<(Instant, Duration)>,
}

impl Bystander {
    pub fn beside(end: &End) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(Mutex::new(Turns {
            began: Instant::now(),
            late: Vec::new(),
        }));
        let (stopped, log) = (Arc::clone(&stop), Arc::clone(&turns));
        let stand_by = move || {
            let lo = Interface::by_name("lo").expect("in every namespace");
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                lo.set_up(true).expect("as it is");
                let mut turns = log.lock().expect("no panic");
                let (began, now) = (turns.began, Instant::now());
                turns.late.extend(late(began, now).map(|late| (now, late)));
                turns.began = now;
            }
        };
        Self {
            stop,
            turns,
            thread: Some(end.ns.spawn(stand_by).expect("in the namespace")),
            noted: Mutex::default(),
        }
    }

    /// Notes if more than this has passed since then, without what everybody had to wait for.
    #[track_caller]
    pub fn within(&self, limit: Duration, start: Instant) {
        let took = self.time_since(start);
        if took >= limit {
            let place = Location::caller();
            let late = format!("{place}: {took:?} of {:?}, {limit:?} allowed", start.elapsed());
            self.noted.lock().expect("no panic").push(late);
        }
    }

    /// Whether all was in time.
    pub fn in_time(&self) -> Result<(), Off> {
        let noted = self.noted.lock().expect("no panic");
        expect(noted.is_empty(), format_args!("{noted:?}"))
    }

    /// The time since then, without what everybody had to wait for.
    pub fn time_since(&self, start: Instant) -> Duration {
        let now = Instant::now();
        let turns = self.turns.lock().expect("no panic");
        let passed = |end: Instant, late: Duration| late.min(end.saturating_duration_since(start));
        let present = late(turns.began, now).map(|late| (now, late));
        let late = turns.late.iter().copied().chain(present);
        (now - start).saturating_sub(late.map(|(end, late)| passed(end, late)).sum())
    }
}

/// What a turn took too long, if that is worth mentioning.
fn late(began: Instant, ended: Instant) -> Option<Duration> {
    let late = (ended - began).saturating_sub(PAUSE);
    (late > PAUSE).then_some(late)
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}
