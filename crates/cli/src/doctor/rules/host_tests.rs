use ringside_measure::schema::{CState, Mitigation};

use super::super::testing::{Check, host};
use super::*;

fn check(change: impl FnOnce(&mut Host)) -> Check {
    let mut host = host();
    change(&mut host);
    Check::of(|findings| judge(&host, Some("eth0"), findings))
}

#[test]
fn a_machine_for_it_is_fine() {
    check(|_| {}).is_fine();
}

#[test]
fn a_virtual_machine_is_told_and_time_that_is_stolen_is_worse() {
    let guest = |steal: f64, now: f64| {
        check(move |host| {
            host.system.hypervisor = Some("KVM".into());
            (host.steal_percent, host.steal_now_percent) = (steal, now);
        })
    };
    let quiet = guest(0.5, 0.0);
    assert!(quiet.only("host.virtual", "note").what.contains("KVM"));
    assert!(quiet.ok("host.steal").contains("0.50 % since boot"));
    for (steal, now) in [(1.0, 0.0), (0.0, 30.0)] {
        let check = guest(steal, now);
        assert!(check.finding("host.steal", "warning").why.contains("neighbours"));
    }
    // Bare metal has none, whatever the counters say.
    check(|host| host.steal_percent = 99.0).is_fine();
}

#[test]
fn deep_sleep_is_told_unless_somebody_forbids_it() {
    let state = |name: &str, micros: u64, disabled| CState {
        name: name.into(),
        exit_latency_ns: micros * 1000,
        disabled,
    };
    let states = move |last_is_off| vec![state("C1", 2, false), state("C6", 133, last_is_off)];
    let deep = |change: fn(&mut Host)| {
        check(|host| {
            host.system.c_states = states(false);
            change(host);
        })
    };
    let finding = deep(|_| {}).only("host.c-states", "note");
    assert!(
        finding.what.contains("133 µs") && finding.what.contains("C6"),
        "{finding:?}"
    );
    assert_eq!(
        finding.mend.as_deref(),
        Some("ringside tune eth0 --dma-latency 0 -- COMMAND")
    );
    // Without any limit the kernel tells 2000 seconds.
    deep(|host| host.wake_up_limit_us = Some(2_000_000_000)).only("host.c-states", "note");
    deep(|host| host.wake_up_limit_us = Some(0)).is_fine();
    check(|host| host.system.c_states = states(true)).is_fine();
}

#[test]
fn slow_governors_are_named_with_their_cpus() {
    let finding = check(|host| host.governors = (0..4).map(|cpu| (cpu, "powersave".into())).collect())
        .only("host.governor", "note");
    assert_eq!(finding.what, "CPUs 0-3 have the governor powersave");
    check(|host| host.governors.clear()).is_fine();
}

#[test]
fn cpus_that_are_shared_are_told() {
    check(|host| host.smt_active = Some(true)).only("host.smt", "note");
    check(|host| host.smt_active = None).is_fine();
    check(|host| host.isolated_cpus.clear()).only("host.isolation", "note");
    let finding = check(|host| host.nohz_full_cpus.clear()).only("host.nohz-full", "note");
    assert!(finding.what.contains("2-3"), "{finding:?}");
    check(|host| host.system.cpus_online = 1).only("host.cpus", "warning");
}

#[test]
fn what_slows_the_kernel_down_is_told() {
    let vulnerability = |status: &str| Mitigation {
        name: "spectre_v2".into(),
        status: status.into(),
    };
    check(|host| host.system.mitigations = vec![vulnerability("Mitigation: Retpolines")])
        .only("host.mitigations", "note");
    // What is left open costs nothing.
    check(|host| host.system.mitigations = vec![vulnerability("Vulnerable")]).is_fine();
    let slow = check(|host| host.system.clocksource = Some("hpet".into())).only("host.clock", "warning");
    assert!(slow.what.contains("hpet"));
    for quick in [None, Some("kvm-clock".to_owned())] {
        check(|host| host.system.clocksource = quick).is_fine();
    }
    let jit = check(|host| host.bpf_jit = Some(false)).only("host.bpf-jit", "warning");
    assert_eq!(jit.mend.as_deref(), Some("sysctl -w net.core.bpf_jit_enable=1"));
    check(|host| host.bpf_jit = None).is_fine();
}

#[test]
fn huge_pages_are_missed_only_where_there_can_be_some() {
    check(|host| host.huge_pages_free = 0).only("host.huge-pages", "note");
    check(|host| (host.huge_pages_free, host.huge_page_bytes) = (0, 0)).is_fine();
    assert!(check(|_| {}).ok("host.huge-pages").contains("2048 KiB"));
}
