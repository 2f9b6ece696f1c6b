use std::sync::Mutex;

use clap::Parser as _;
use ringside_netlab::testing::{expect, measured};

use super::*;
use crate::args::{Cli, Command};
use crate::session::{self, Watched};

#[test]
fn starts_all_threads_at_one_time_after_the_last_is_set_up() {
    let stop = Stop::default();
    let start = Start::new(3);
    let times: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = [0, 5, 20]
            .map(Duration::from_millis)
            .into_iter()
            .map(|set_up| {
                let (start, stop) = (&start, &stop);
                scope.spawn(move || {
                    std::thread::sleep(set_up);
                    let ready_ns = now_ns();
                    start.arrive();
                    (ready_ns, start.wait(stop))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (_, start_ns) = times[0];
    for (ready_ns, of_thread_ns) in &times {
        assert_eq!(*of_thread_ns, start_ns, "{times:?}");
        assert!(*ready_ns < start_ns, "{times:?}");
    }
}

#[test]
fn ends_without_a_start_if_the_run_ends() {
    let stop = Stop::default();
    let start = Start::new(2);
    start.arrive();
    stop.set();
    // The other thread never arrives.
    start.wait(&stop);
}

/// A thread that has no CPU between its arrival and its first instruction enters late.
#[test]
fn workers_of_a_run_are_ready_before_their_schedules_begin() {
    let line = "ringside tx lo --to-mac 02:00:00:00:00:01 --rate 1000";
    let Command::Tx(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
        panic!("another command");
    };
    measured(|| {
        let times = Mutex::new(Vec::new());
        let watched = Watched::ports([]);
        let stop = Stop::default();
        session::run(vec![(); 4], watched, &args.port, &args.run, &stop, |(), worker| {
            let entered_ns = now_ns();
            times.lock().unwrap().push((entered_ns, worker.start()));
            worker.sent(1);
            Ok(())
        })
        .unwrap();
        let times = times.into_inner().unwrap();
        assert_eq!(times.len(), 4);
        let (_, start_ns) = times[0];
        assert!(
            times.iter().all(|(_, of_worker_ns)| *of_worker_ns == start_ns),
            "{times:?}"
        );
        let last = times.iter().map(|(entered_ns, _)| *entered_ns).max();
        expect(last <= Some(start_ns), format!("{times:?}"))
    });
}
