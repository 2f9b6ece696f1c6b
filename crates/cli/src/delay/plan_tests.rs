use clap::Parser as _;
use ringside_measure::delay::Wait;

use super::*;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    let words = ["delay"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words)
        .unwrap_or_else(|error| panic!("{error}"))
        .args
}

/// Four CPUs, two of each core, that sleep.
fn machine() -> Machine {
    Machine {
        allowed: vec![0, 1, 2, 3],
        cores: vec![vec![0, 1], vec![2, 3]],
        states: vec![("POLL".into(), 0), ("C1".into(), 2), ("C6".into(), 133)],
        limit: Ok(2_000_000_000),
        idle: None,
        is_virtual: false,
    }
}

fn places(plan: &Plan, core: Core) -> Vec<Place> {
    let cells = plan.cells.iter().filter(|planned| planned.cell.core == core);
    cells.map(|planned| planned.place.clone().expect("to be had")).collect()
}

#[test]
fn all_cells_have_their_places() {
    let plan = Plan::new(&args("--lab veth"), &machine(), 1).unwrap();
    assert_eq!((plan.cells.len(), plan.had(), plan.warnings.len()), (12, 12, 0));
    let same = Place {
        napi: 1,
        application: 1,
    };
    assert_eq!(places(&plan, Core::Same), [same; 6]);
    let other = Place {
        napi: 1,
        application: 2,
    };
    assert_eq!(places(&plan, Core::Other), [other; 6], "of another core");
}

#[test]
fn only_what_was_asked_for() {
    let line = "--lab veth --waits poll,spin,poll --cores other --c-states off --other-cpu 3";
    let plan = Plan::new(&args(line), &machine(), 0).unwrap();
    let waits: Vec<Wait> = plan.cells.iter().map(|planned| planned.cell.wait).collect();
    assert_eq!(waits, [Wait::Spin, Wait::Poll]);
    let place = Place {
        napi: 0,
        application: 3,
    };
    assert_eq!(places(&plan, Core::Other), [place; 2]);
}

#[test]
fn one_cpu_has_no_other() {
    let machine = Machine {
        allowed: vec![2],
        cores: Vec::new(),
        ..machine()
    };
    let plan = Plan::new(
        &args("--lab veth"),
        &machine,
        machine.lab_cpu(&args("--lab veth")).unwrap(),
    )
    .unwrap();
    assert_eq!((plan.cells.len(), plan.had()), (12, 6));
    for planned in plan.cells {
        match planned.cell.core {
            Core::Same => assert_eq!(planned.place.unwrap().application, 2),
            Core::Other => assert_eq!(
                planned.place.unwrap_err(),
                "no other CPU: this process may run on CPU 2 alone"
            ),
        }
    }
    let error = Plan::new(&args("--lab veth --cores other"), &machine, 2).unwrap_err();
    assert!(error.to_string().contains("none of the cells"), "{error}");
    // NAPI of an interface runs where its interrupt goes.
    let plan = Plan::new(&args("eth0"), &machine, 0).unwrap();
    assert_eq!(plan.had(), 6);
    assert_eq!(
        plan.cells[0].place.clone().unwrap_err(),
        "NAPI runs on CPU 0, and this process may run on CPU 2 alone"
    );
}

#[test]
fn threads_of_one_core_are_told() {
    let machine = Machine {
        allowed: vec![0, 1],
        ..machine()
    };
    let plan = Plan::new(&args("--lab veth"), &machine, 0).unwrap();
    assert_eq!(plan.had(), 12);
    assert!(
        plan.warnings
            .iter()
            .any(|warning| warning.contains("threads of one core")),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn c_states_that_cannot_be_switched_off_are_told() {
    let machine = Machine {
        limit: Err("No such file".into()),
        ..machine()
    };
    let plan = Plan::new(&args("--lab veth"), &machine, 0).unwrap();
    assert_eq!(plan.had(), 6);
    for planned in &plan.cells {
        let off = planned.cell.c_states == CStates::Off;
        assert_eq!(planned.place.is_err(), off);
    }
    let error = Plan::new(&args("--lab veth --c-states off"), &machine, 0).unwrap_err();
    assert!(
        error.to_string().contains("cannot be switched off: No such file"),
        "{error}"
    );
}

#[test]
fn where_it_can_make_no_difference_it_is_said() {
    let warning = |machine: &Machine| {
        let plan = Plan::new(&args("--lab veth"), machine, 0).unwrap();
        assert_eq!(plan.had(), 12, "and measured all the same");
        plan.warnings.join("\n")
    };
    let without = Machine {
        states: Vec::new(),
        ..machine()
    };
    assert!(warning(&without).contains("no cpuidle"));
    let polling = Machine {
        idle: Some("poll".into()),
        ..machine()
    };
    assert!(warning(&polling).contains("idle=poll"));
    let held = Machine {
        limit: Ok(20),
        ..machine()
    };
    assert!(warning(&held).contains("somebody holds /dev/cpu_dma_latency at 20 µs"));
    let loose = Machine {
        limit: Ok(133),
        ..machine()
    };
    assert_eq!(warning(&loose), "");
    let guest = Machine {
        is_virtual: true,
        ..machine()
    };
    assert!(warning(&guest).contains("hypervisor"));
}

#[test]
fn cpus_that_make_no_sense_are_refused() {
    for (line, words) in [
        (
            "--lab veth --napi-cpu 9",
            "--napi-cpu 9: this process may run on CPUs 0-3",
        ),
        (
            "--lab veth --other-cpu 9",
            "--other-cpu 9: this process may run on CPUs 0-3",
        ),
        (
            "--lab veth --other-cpu 0",
            "--other-cpu 0: that is the CPU that runs NAPI",
        ),
        (
            "--lab veth --napi-cpu 2 --other-cpu 2",
            "--other-cpu 2: that is the CPU",
        ),
        ("eth0 --other-cpu 9", "--other-cpu 9"),
    ] {
        let error = machine().check(&args(line)).unwrap_err().to_string();
        assert!(error.contains(words), "{line}: {error}");
    }
    machine().check(&args("eth0 --other-cpu 0")).unwrap();
    let error = Plan::new(&args("eth0 --other-cpu 3"), &machine(), 3)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--other-cpu 3: that is the CPU that runs NAPI"),
        "{error}"
    );
    assert_eq!(machine().lab_cpu(&args("--lab veth --napi-cpu 2")).unwrap(), 2);
}
