//! A veth takes what the fast path sends only while its other end has an XDP program: health says
//! when it has none, and what to do.

use std::process::Command;

use ringside_netlab::wait_until;

use crate::bed::{Bed, Family, Kind, Place, ip};
use crate::common::daemon::binary;
use crate::peers::{answered, unanswered, wait_for_answer};
use crate::process::PATIENCE;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => reports_a_missing_program_with_the_command_that_helps;
    workers = crate::tenants::WORKERS => workers_need_no_program;
    generic = crate::tenants::GENERIC => workers_need_no_program;
}

/// What health says of the other end of the gateway's veth.
fn problem(bed: &mut Bed) -> Option<String> {
    let mut problems = bed.ringside().problems();
    assert!(problems.len() <= 1, "{problems:#?}");
    problems.pop()
}

fn wait_for_problem(bed: &mut Bed) -> String {
    let mut found = None;
    let is_reported = || {
        found = problem(bed);
        found.is_some()
    };
    assert!(wait_until(PATIENCE, is_reported), "health says ok");
    let end = &bed.uplinks[0].b;
    let text = format!(
        "the interface eth0 is a veth whose other end, {} in the network namespace {}, has no XDP program in native mode",
        end.interface.name(),
        end.ns.name()
    );
    let problem = found.expect("reported");
    assert!(problem.starts_with(&text), "{problem}");
    problem
}

/// Runs the command at the end of a problem.
fn follow(problem: &str) {
    let (_, command) = problem.rsplit_once("; ").expect("a command");
    let program = binary().get_program().to_string_lossy().into_owned();
    let command = command.replace("ringside-gateway", &program);
    let done = Command::new("sh").args(["-c", &command]).output().expect("sh");
    assert!(done.status.success(), "{command}: {done:?}");
}

fn reports_a_missing_program_with_the_command_that_helps(kind: Kind) {
    let mut bed = Bed::new("peer-program", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    answered(bed.at(1), to);
    assert_eq!(problem(&mut bed), None);
    let end = bed.uplinks[0].b.clone();
    // The program that the bed has attached is removed, and later the one of the command.
    bed.sleep();
    let detach = || ip(&end.ns, &format!("link set dev {} xdp off", end.interface.name()));
    for gro in [false, true] {
        // With it the kernel leaves packets in a ring, where no counter shows them.
        let set = || end.interface.set_feature("rx-gro", gro);
        end.run(set).expect("set");
        let text = wait_for_problem(&mut bed);
        if !gro {
            let before = bed.ringside().dropped("transmit-lost");
            unanswered(bed.at(1), to);
            assert!(bed.ringside().dropped("transmit-lost") > before);
        }
        follow(&text);
        wait_for_answer(bed.at(1), to);
        assert!(wait_until(PATIENCE, || problem(&mut bed).is_none()));
        detach();
    }
    // A start says it, too.
    let folder = bed.ringside().end(true);
    bed.ringside().start_in(folder);
    wait_for_problem(&mut bed);
    let log = bed.ringside().daemon().log();
    assert!(
        log.contains("ERROR") && log.contains("has no XDP program in native mode"),
        "{log}"
    );
}

/// What does not go by the driver arrives without one.
fn workers_need_no_program(kind: Kind) {
    let mut bed = Bed::new("no-program", kind, &[Place::vxlan(Family::V4); 2]);
    bed.sleep();
    answered(bed.at(1), bed.at(2).address(Family::V4));
    // Two looks at the interfaces.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(problem(&mut bed), None);
}
