//! The test of `ringside doctor --live` leaves nothing on the interface, whoever is killed, stopped or hangs.

use std::fs;
use std::time::Duration;

use crate::common::{Done, PATIENCE, Running, assert_clean, lab, settings, start, start_receiver, unwrapped};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, wait_until};

/// Packets that are not a few of the kernel's own.
const ANSWERS: u64 = 100;

/// A test that goes on for ever: each probe is answered, and there is no end of them.
struct Endless {
    doctor: Running,
    /// Process number of the test.
    test: u32,
    lab: Lab,
    _echo: Running,
}

impl Endless {
    fn start(tag: &str, deadline: Duration) -> Self {
        let lab = lab(tag, 1);
        let echo = start_receiver(&lab.b, "echo {} --wait poll");
        let arguments = format!(
            "doctor {{}} --no-veth --live --probes 1000000000 --peer {} --deadline {}",
            lab.b.ipv4,
            deadline.as_secs()
        );
        let doctor = start(&lab.a, &arguments);
        // A program is attached before that, too, to see whether it can be.
        assert!(
            wait_until(PATIENCE, || is_attached(&lab.a)
                && lab.b.state().unwrap().stats.tx_packets > ANSWERS),
            "the test has answers"
        );
        let pid = doctor.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let test = children.trim().parse().expect("one child");
        Self {
            doctor,
            test,
            lab,
            _echo: echo,
        }
    }
}

fn is_attached(end: &End) -> bool {
    end.state().unwrap().xdp.is_some()
}

/// Without the breaks of its lines.
fn told(done: &Done) -> String {
    unwrapped(&done.out)
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved. The process is the child of one that has not waited for it.
    let sent = unsafe { libc::kill(i32::try_from(pid).expect("small"), signal) };
    assert_eq!(sent, 0, "kill {pid}");
}

fn is_alive(pid: u32) -> bool {
    ringside_nic::process::start_time(pid).is_some()
}

/// The deadline is far away: what ends the test is that nobody waits for it any more.
#[test]
fn a_kill_ends_the_test() {
    if !is_root() {
        return;
    }
    let bed = Endless::start("wdkill", Duration::from_secs(600));
    let before = settings(&bed.lab.a);
    bed.doctor.signal(libc::SIGKILL);
    assert!(wait_until(PATIENCE, || !is_attached(&bed.lab.a)), "a program is left");
    assert!(wait_until(PATIENCE, || !is_alive(bed.test)), "the test lives on");
    assert_clean(&bed.lab.a);
    assert_eq!(settings(&bed.lab.a), before);
}

/// Ctrl-C goes to the doctor alone: the test is in a process group of its own.
#[test]
fn an_interrupt_ends_the_test() {
    if !is_root() {
        return;
    }
    // Ignored, as it is behind `&` in a script, it would be ignored in the doctor, too.
    // SAFETY: no handler is involved.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let bed = Endless::start("wdint", Duration::from_secs(600));
    bed.doctor.signal(libc::SIGINT);
    assert!(wait_until(PATIENCE, || !is_attached(&bed.lab.a)), "a program is left");
    assert_clean(&bed.lab.a);
}

/// Whoever watches is stopped: the test ends by itself. When it goes on it tells.
#[test]
fn a_stopped_doctor_does_not_keep_the_test() {
    if !is_root() {
        return;
    }
    let bed = Endless::start("wdstop", Duration::from_secs(8));
    bed.doctor.signal(libc::SIGSTOP);
    assert!(wait_until(PATIENCE, || !is_attached(&bed.lab.a)), "a program is left");
    assert_clean(&bed.lab.a);
    bed.doctor.signal(libc::SIGCONT);
    let done = bed.doctor.end();
    assert_eq!(done.status.code(), Some(4), "{done:#?}");
    assert!(
        told(&done).contains("the test of veth-a was not finished: "),
        "{done:#?}"
    );
    assert!(told(&done).contains("everything is as it was before"), "{done:#?}");
}

/// The test itself is stopped, so that it cannot end by itself.
#[test]
fn a_stopped_test_is_killed() {
    if !is_root() {
        return;
    }
    let bed = Endless::start("wdhang", Duration::from_secs(8));
    signal(bed.test, libc::SIGSTOP);
    let done = bed.doctor.end();
    assert_eq!(done.status.code(), Some(4), "{done:#?}");
    assert!(
        told(&done).contains("was not finished: it hung and was killed after 8 s"),
        "{done:#?}"
    );
    assert!(!is_alive(bed.test));
    assert!(!is_attached(&bed.lab.a));
    assert_clean(&bed.lab.a);
}

/// Both: the kernel kills a stopped test, too, when its parent ends.
#[test]
fn a_stopped_test_ends_with_a_killed_doctor() {
    if !is_root() {
        return;
    }
    let bed = Endless::start("wdboth", Duration::from_secs(600));
    signal(bed.test, libc::SIGSTOP);
    bed.doctor.signal(libc::SIGKILL);
    assert!(wait_until(PATIENCE, || !is_attached(&bed.lab.a)), "a program is left");
    assert_clean(&bed.lab.a);
}

/// What was found before the deadline is told.
#[test]
fn at_the_deadline_it_ends() {
    if !is_root() {
        return;
    }
    let bed = Endless::start("wdtime", Duration::from_secs(8));
    let done = bed.doctor.end();
    assert_eq!(done.status.code(), Some(4), "{done:#?}");
    assert!(
        told(&done).contains("it did not end within 8 s and was stopped; for more time, use --deadline"),
        "{done:#?}"
    );
    assert!(
        told(&done).contains("zero-copy: refused, as the driver does not offer it"),
        "{done:#?}"
    );
    assert_clean(&bed.lab.a);
}

/// Somebody takes the interface away meanwhile.
#[test]
fn an_interface_that_goes_ends_the_test() {
    if !is_root() {
        return;
    }
    let bed = Endless::start("wdgone", Duration::from_secs(600));
    bed.lab.delete_link().unwrap();
    let done = bed.doctor.end();
    assert_eq!(done.status.code(), Some(4), "{done:#?}");
    assert!(
        told(&done).contains("is not as it was before: the interface is gone"),
        "{done:#?}"
    );
    assert!(!is_alive(bed.test));
}
