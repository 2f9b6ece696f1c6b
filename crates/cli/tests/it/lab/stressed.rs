//! stress-ng and another program as loads: on the CPUs that the file says, for the loaded turns, and gone with the lab, however that ends.

use std::collections::BTreeSet;
use std::fs;

use ringside_measure::schema::LoadKind;
use ringside_netlab::testing::{Off, expect, is_root, measured};
use ringside_netlab::wait_until;
use ringside_nic::process;

use super::{
    HOSTS, PATIENCE, Scratch, alone, assert_nothing_is_left_of, check_cell, children_of, has_ended, probe, result, run,
    start,
};

const LOAD: &str = "[[load]]\nname = \"busy\"\nkind = \"stress-ng\"\nstressor = \"cpu\"\nworkers = 2\ncpus = [1]\n\
                    [[load]]\nname = \"own\"\nkind = \"program\"\ncommand = [\"sh\", \"-c\", \"while :; do :; done\"]\ncpus = [0]\n";

/// All processes below one.
fn offspring_of(pid: u32) -> Vec<u32> {
    let mut all = children_of(pid);
    let mut at = 0;
    while let Some(child) = all.get(at) {
        all.extend(children_of(*child));
        at += 1;
    }
    all
}

/// The name of a process and the CPUs that it may run on.
fn status(pid: u32) -> Option<[String; 2]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |key| status.lines().find_map(|line| line.strip_prefix(key));
    Some([value("Name:")?, value("Cpus_allowed_list:")?].map(|value| value.trim().to_owned()))
}

/// Runs the lab into a folder and checks that each load runs on its CPU, in the loaded turn only.
fn run_with_load(scratch: &Scratch, folder: &str) -> Result<(), Off> {
    let mut running = start(scratch, &format!("run my.toml --into {folder} --json"));
    let pid = running.pid();
    let (mut seen, mut busy, mut own) = (BTreeSet::new(), false, false);
    let over = wait_until(PATIENCE, || {
        for worker in offspring_of(pid) {
            let Some([name, cpus]) = status(worker) else { continue };
            // A program's CPUs are set before it is one.
            if name == "sh" {
                assert_eq!(cpus, "0");
                own |= process::ran(worker).is_some_and(|(time, cpu)| time > 10_000_000 && cpu == 0);
                seen.insert(worker);
            }
            if name.starts_with("stress-ng-cpu") {
                assert_eq!(cpus, "1");
                seen.insert(worker);
                busy |= process::ran(worker).is_some_and(|(time, cpu)| time > 10_000_000 && cpu == 1);
            }
        }
        running.is_over()
    });
    assert!(over, "{}", running.told());
    let done = running.end().good();
    assert!(seen.iter().all(|worker| has_ended(*worker)), "{seen:?}");
    assert_nothing_is_left_of(pid);
    let result = result(&done.out);
    let [idle, loaded] = &result.cells[..] else {
        panic!("{result:#?}")
    };
    assert_eq!([idle.condition, loaded.condition], [LoadKind::Idle, LoadKind::Foreign]);
    [idle, loaded].into_iter().for_each(check_cell);
    expect(
        seen.len() >= 3 && busy && own,
        format_args!("two workers and a shell, which work: {seen:?}"),
    )
}

#[test]
fn stress_runs_on_its_cpus_while_a_turn_is_loaded() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let keys = "with = \"udp\"\nmeasure = [\"rtt\"]\ncount = 30\nrate = 20";
    scratch.lab(&format!(
        "rounds = 1\nturn = \"20s\"\nsettle = \"1ms\"\n{HOSTS}{LOAD}{}",
        probe("p", keys)
    ));
    let mut runs = 0;
    // The turn ends with its probes. On a busy machine stress-ng may start too late for it.
    measured(|| {
        runs += 1;
        run_with_load(&scratch, &format!("run{runs}"))
    });

    // A killed lab takes them along.
    let mut running = start(&scratch, "run my.toml --into killed");
    let pid = running.pid();
    assert!(
        wait_until(PATIENCE, || offspring_of(pid).len() >= 3),
        "{}",
        running.told()
    );
    let offspring = offspring_of(pid);
    running.signal(libc::SIGKILL);
    assert!(wait_until(PATIENCE, || running.is_over()));
    let gone = || offspring.iter().all(|pid| has_ended(*pid));
    assert!(wait_until(PATIENCE, gone), "{offspring:?}");
    run(&scratch, "clean killed").good();
    assert_nothing_is_left_of(pid);
}
