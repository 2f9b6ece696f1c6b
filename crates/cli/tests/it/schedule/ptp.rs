//! A real ptp4l at both ends.

use ringside_nic::clock::Discipline;

use super::common::ptp::{Daemon, Folder};
use super::*;

#[test]
fn a_real_ptp4l_is_asked() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("schedptp", 1), Folder::new());
    // Nobody gives it the time. The offset of 0 that it tells is none.
    let follows = Daemon::start(&lab.b, &folder, "b", &["-s"]);
    follows.wait_until("waiting for a master", |told| {
        (told.offset_ns, told.steps_removed, told.knows_its_offset()) == (0, 0, false)
    });
    let listener = |most: &str| {
        format!(
            "listener {{}} {CYCLE} --max-clock-offset {most} {} -t 0.2",
            follows.option()
        )
    };
    let message = run(&lab.b, &listener("50ms")).bad();
    if !Discipline::read().expect("the kernel's word").is_synchronised {
        assert!(message.contains("ptp4l has no master"), "{message}");
    }
    let leads = Daemon::start(&lab.a, &folder, "a", &[]);
    leads.wait_until("giving the time", |told| told.is_master && told.steps_removed == 0);
    follows.wait_until("an offset", |told| told.steps_removed == 1 && told.knows_its_offset());
    // One host, one clock: what it is off is what time stamps of software are worth, on a busy machine up to milliseconds.
    let [sends, hears] = [&leads, &follows].map(|one| format!("{} --max-clock-offset 50ms", one.option()));
    let (_, sent, received) = both(&lab, &format!("{sends} -t 0.3"), &hears);
    let state = |result: &RunResult| {
        result
            .schedule
            .as_ref()
            .map(|all| all.clock_state.clone())
            .expect("told")
    };
    let (at_master, at_other) = (state(&sent), state(&received));
    assert_eq!(
        (at_master.ptp4l_offset_ns, at_master.ptp4l_steps_removed),
        (Some(0), Some(0))
    );
    assert_eq!(at_other.ptp4l_steps_removed, Some(1), "{at_other:#?}");
    assert!(
        at_other.ptp4l_path_delay_ns.is_some_and(|delay| delay != 0),
        "{at_other:#?}"
    );
    assert_eq!(
        at_other.by.as_deref(),
        Some("ptp4l"),
        "a veth has no clock: {at_other:#?}"
    );
    assert_eq!(at_other.offset_ns, at_other.ptp4l_offset_ns.map(i64::unsigned_abs));
    // What is worse than asked is refused. By chance it is right to a nanosecond.
    let refused = (0..5).any(|_| {
        let message = run(&lab.b, &listener("1ns")).bad();
        message.contains("--max-clock-offset 0.001 µs: CLOCK_TAI may be") && message.contains(" µs off, by ptp4l")
    });
    assert!(refused);
}
