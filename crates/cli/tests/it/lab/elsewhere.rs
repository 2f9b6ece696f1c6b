//! What another machine's `ringside serve --lab` does for a lab here: it hears and sends the streams of schedules, steers its interface, and receives
//! loads. The other machine is a namespace of this one: the same clock, though nothing here knows that.

use std::fs;

use ringside_measure::schema::{LabCell, LabClocks, LaunchBy, LoadKind};
use ringside_netlab::testing::{Off, expect, is_root, measured};
use ringside_netlab::wait_until;
use ringside_nic::clock::Discipline;

use super::common::{self, ptp};
use super::{Scratch, alone, cannot_be_run, check_cell, result, start_at, unwrapped};

const HEAD: &str = "rounds = 1\nturn = \"300ms\"\nsettle = \"10ms\"\n[[host]]\nname = \"me\"\nplace = \"here\"\n";

fn far(address: impl std::fmt::Display) -> String {
    format!("[[host]]\nname = \"far\"\nserve = \"{address}\"\n")
}

#[test]
fn another_machine_steers_and_keeps_schedules() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let hosts = common::lab("lab-else", 2);
    let mut content = HEAD.to_owned() + &far(hosts.b.ipv4);
    // All that comes is spread over the CPU that it is not asked for on.
    content += "[[steering]]\nname = \"rps\"\nhost = \"far\"\nrps = [\"0=0\", \"1=0\"]\ncpu = 1\n\
                [[load]]\nname = \"streams\"\nkind = \"tcp\"\nbitrate = \"8M\"\nwindow = 16384\n\
                [[load]]\nname = \"packets\"\nkind = \"udp\"\nrate = 2000\n\
                [[load]]\nname = \"iperf\"\nkind = \"iperf3-udp\"\nbitrate = \"4M\"\n\
                [[probe]]\nname = \"steered\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\nsteering = [\"rps\"]\n";
    for (name, ends, via) in [
        ("there", "from = \"me\"\nto = \"far\"", "af-packet"),
        ("back", "from = \"far\"\nto = \"me\"", "af-packet"),
        ("xdp", "from = \"me\"\nto = \"far\"", "af-xdp"),
    ] {
        content += &format!(
            "[[schedule]]\nname = {name:?}\n{ends}\nvia = {via:?}\nuncertainty = \"20ms\"\ncycle = \"10ms\"\n\
             class = [\"5:0us:4ms:200:2\", \"3:5ms:4ms\"]\n"
        );
    }
    scratch.lab(&content);
    measured(|| {
        _ = fs::remove_dir_all(scratch.path("run"));
        let server = common::start(&hosts.b, "serve {} --insecure --lab");
        server.wait_for("UDP port");
        let done = start_at(&hosts.a, &scratch, "run my.toml --into run --json")
            .end()
            .good();
        let result = result(&done.out);
        // Idle, and beside the loads.
        let paths = [
            "steered",
            "there PCP 5",
            "there PCP 3",
            "back PCP 5",
            "back PCP 3",
            "xdp PCP 5",
            "xdp PCP 3",
        ];
        for path in paths {
            let cells = result.cells.iter().filter(|cell| cell.path == path).count();
            assert_eq!(cells, 2, "{path}: {:#?}", result.cells);
        }
        assert_eq!(result.cells.len(), 2 * paths.len());
        for cell in &result.cells {
            assert_eq!(cell.unavailable, None, "{cell:#?}");
            match cell.schedule {
                Some(_) => check_class(cell)?,
                None => check_steered(cell),
            }
        }
        // What was set there is put back, and what was started is gone.
        let rps = || fs::read_to_string(format!("/sys/class/net/{}/queues/rx-0/rps_cpus", hosts.b.interface)).unwrap();
        let mask = hosts.b.run(rps);
        assert!(mask.trim().chars().all(|digit| "0,".contains(digit)), "{mask}");
        let said = server.interrupt().good().err;
        assert!(
            !said.contains("closed the connection"),
            "it was told that all is over: {said}"
        );
        let times = |word: &str| said.matches(&format!("{word} for a lab")).count();
        for word in ["a question of bounds", "a listener", "a talker", "steering"] {
            assert!(times(word) > 0, "{word}: {said}");
        }
        // Each kind once to see whether it is had here, and all of them for each loaded turn: none is
        // there for longer than that. A turn that was disturbed is repeated, for both classes of a
        // schedule at once.
        let loaded = result.cells.iter().filter(|cell| cell.condition == LoadKind::Foreign);
        let repeated: u64 = loaded
            .filter(|cell| !cell.path.ends_with("PCP 3"))
            .map(|cell| u64::from(cell.turns_repeated))
            .sum();
        assert_eq!(times("receivers of loads") as u64, 2 + 4 + repeated, "{said}");
        common::assert_clean(&hosts.a);
        Ok(())
    });
}

fn check_steered(cell: &LabCell) {
    check_cell(cell);
    let [steering] = &cell.steering[..] else {
        panic!("{cell:#?}")
    };
    assert_eq!((steering.name.as_str(), steering.host.as_str()), ("rps", "far"));
    assert_eq!(steering.seen.settings.len(), 2, "{steering:#?}");
    let landings: Vec<_> = steering.seen.classes.iter().flat_map(|class| &class.landings).collect();
    assert!(
        !landings.is_empty() && landings.iter().all(|landing| landing.cpu == 0),
        "{steering:#?}"
    );
    // It is said that this is not what was asked for.
    assert!(!steering.seen.is_right(), "{steering:#?}");
    assert_eq!(
        cell.loads.len(),
        if cell.condition == LoadKind::Foreign { 3 } else { 0 }
    );
    for load in &cell.loads {
        // What arrives at an iperf3 elsewhere is not told.
        let came = load.received_bits_per_s.or(load.received_pps);
        assert!(
            came.is_some_and(|rate| rate > 100.0) || load.name == "iperf",
            "{load:#?}"
        );
    }
}

fn check_class(cell: &LabCell) -> Result<(), Off> {
    let of = cell.schedule.as_ref().expect("a schedule");
    let each_cycle = u64::from(of.class.packets_per_cycle);
    assert_eq!(of.kept_by, LaunchBy::Thread);
    // A turn has thirty cycles. A busy host takes the machine away for half of it.
    let received = cell.probes.received;
    expect(
        received >= 8 * each_cycle,
        format_args!("{}: {received} received", cell.path),
    )?;
    if cell.condition != LoadKind::Foreign {
        assert_eq!(cell.probes.lost, 0, "{cell:#?}");
    }
    let clock = cell.clock.as_ref().expect("another machine has another clock");
    assert_eq!(clock.contradiction_ns, 0, "{clock:#?}");
    // It is the same one.
    assert!(clock.offset_ns.unsigned_abs() <= clock.uncertainty_ns, "{clock:#?}");
    Ok(())
}

/// Nothing begins that a server would end in the middle, or that cannot get there.
#[test]
fn what_cannot_be_done_elsewhere_is_told_before_it_begins() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let row = common::routed("lab-else");
    let server = common::start(&row.right.b, "serve {} --insecure --lab --max-time 1");
    server.wait_for("UDP port");
    // It is reached over a router by the one, and is on the same link as the other.
    let (behind, beside) = (&row.left.a, &row.right.a);
    let probe = "[[probe]]\nname = \"p\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\ncount = 20\n";
    let load = "[[load]]\nname = \"tcp\"\nkind = \"tcp\"\nbitrate = \"8M\"\nwindow = 16384\n";
    let schedule = |from: &str, to: &str| {
        format!(
            "[[schedule]]\nname = \"s\"\nfrom = {from:?}\nto = {to:?}\nuncertainty = \"20ms\"\nclass = [\"5:0us:500us\"]\n"
        )
    };
    let steering = "[[steering]]\nname = \"rps\"\nhost = \"far\"\nrps = [\"0=0\"]\n";
    let steered = steering.to_owned() + probe + "steering = [\"rps\"]\n";
    let (there, back) = (schedule("me", "far"), schedule("far", "me"));
    let tagged = probe.to_owned() + "pcp = 5\n";
    let behind_it = |what: &str| format!("{what} to a host behind the router {}", row.left.b.ipv4);
    let router = behind_it("the schedule s goes");
    let (one, two) = (
        behind_it("the probe p with its `pcp` goes"),
        behind_it("the schedule s, the probe p with its `pcp` go"),
    );
    let time = "a turn of 1.01s with `settle` is longer than its server does anything for a lab, 1s".to_owned();
    for (near, turn, what, why) in [
        (behind, "300ms", there.as_str(), Some(&router)),
        (behind, "300ms", &back, Some(&router)),
        (behind, "300ms", &tagged, Some(&one)),
        (behind, "300ms", &(there.clone() + &tagged), Some(&two)),
        (behind, "300ms", &(load.to_owned() + probe), None),
        (beside, "1s", &there, Some(&time)),
        (beside, "1s", &steered, Some(&time)),
        (beside, "1s", &(load.to_owned() + probe), Some(&time)),
        // The server answers probes for as long as they come.
        (beside, "1s", probe, None),
        (beside, "300ms", &tagged, None),
        (beside, "300ms", &(load.to_owned() + &steered + &there), None),
    ] {
        let content = HEAD.replace("300ms", turn) + &far(row.right.b.ipv4) + what;
        scratch.lab(&content);
        let lab = |line: &str| start_at(near, &scratch, line).end();
        let checked = lab("check my.toml");
        let checked = match why {
            None => unwrapped(&checked.good().out),
            Some(_) => cannot_be_run(&checked),
        };
        let done = lab("run my.toml --into run --json");
        match why {
            None => {
                assert!(!checked.contains("cannot be run"), "{checked}\n{content}");
                let result = result(&done.good().out);
                let is_had = |cell: &LabCell| cell.unavailable.is_none();
                assert!(result.cells.iter().all(is_had), "{content}: {result:#?}");
                fs::remove_dir_all(scratch.path("run")).expect("its folder");
            }
            Some(why) => {
                let told = done.bad();
                assert!(told.contains(why.as_str()), "{told}\n{content}");
                assert!(checked.contains(why.as_str()), "{checked}\n{content}");
                assert!(!scratch.path("run").exists(), "nothing has begun: {content}");
            }
        }
    }
    server.interrupt().good();
    common::assert_clean(&row.left.a);
}

/// A schedule to another machine takes clocks that are as right as was asked for, by who keeps them at both ends, and the result has their words.
#[test]
fn clocks_that_are_not_right_enough_are_refused() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let (hosts, folder) = (common::lab("lab-else", 1), ptp::Folder::new());
    let lab = |line: &str| start_at(&hosts.a, &scratch, line).end();
    let write = |most: &str, keys: &str| {
        let mut content = HEAD.to_owned() + &far(hosts.b.ipv4);
        for (name, from, to) in [("there", "me", "far"), ("back", "far", "me")] {
            content += &format!(
                "[[schedule]]\nname = {name:?}\nfrom = {from:?}\nto = {to:?}\nuncertainty = \"20ms\"\ncycle = \"10ms\"\n\
                 class = [\"5:0us:4ms\"]\nmax-clock-offset = {most:?}\n{keys}"
            );
        }
        scratch.lab(&content);
    };
    // Where nobody keeps a clock, nobody knows.
    if !Discipline::read().expect("the kernel's word").is_synchronised {
        let server = common::start(&hosts.b, "serve {} --insecure --lab");
        server.wait_for("UDP port");
        write("50ms", "");
        let checked = cannot_be_run(&lab("check my.toml"));
        let told = unwrapped(&lab("run my.toml --into run").bad());
        let none = "nobody knows how far CLOCK_TAI is off: there is no ptp4l";
        let whose = format!("the host me: {none}");
        let also = format!("; the host far ({}): {none}", hosts.b.ipv4);
        for told in [&checked, &told] {
            let asks = "the schedule there with max-clock-offset 50000 µs: ";
            assert!(
                told.contains(&format!("{asks}{whose}")) && told.contains(&also),
                "{told}"
            );
        }
        assert_eq!(told.matches("ringside: ").count(), 1, "one error: {told}");
        assert!(!scratch.path("run").exists(), "nothing has begun");
        server.interrupt().good();
    }
    let [leads, follows] = ptp::pair(&hosts, &folder);
    let server = common::start(&hosts.b, &format!("serve {{}} --insecure --lab {}", follows.option()));
    server.wait_for("UDP port");
    let here = format!("ptp4l = {:?}\n", leads.socket.display().to_string());
    write("50ms", &here);
    lab("check my.toml").good();
    let (done, told) = measured(|| {
        _ = fs::remove_dir_all(scratch.path("run"));
        let done = lab("run my.toml --into run --json").good();
        let told = result(&done.out);
        told.cells.iter().try_for_each(check_class)?;
        Ok((done, told))
    });
    assert_eq!(told.cells.len(), 2, "{told:#?}");
    for cell in &told.cells {
        let clocks = cell.schedule.as_ref().and_then(|of| of.clocks.as_deref());
        let clocks: &LabClocks = clocks.expect("recorded");
        assert_eq!((clocks.most_offset_ns, clocks.is_one), (Some(50_000_000), false));
        let [master, other] = match cell.path.as_str() {
            "there PCP 5" => [&clocks.talker, &clocks.listener],
            _ => [&clocks.listener, &clocks.talker],
        };
        assert_eq!((master.ptp4l_offset_ns, master.ptp4l_steps_removed), (Some(0), Some(0)));
        assert_eq!(
            (other.ptp4l_steps_removed, other.by.as_deref()),
            (Some(1), Some("ptp4l"))
        );
        assert_eq!(other.offset_ns, other.ptp4l_offset_ns.map(i64::unsigned_abs));
        // It is the same clock.
        let (apart, uncertainty) = (clocks.apart_ns.expect("measured"), clocks.apart_uncertainty_ns);
        assert!(apart.unsigned_abs() <= uncertainty.expect("known"), "{clocks:#?}");
    }
    let text = unwrapped(&done.err);
    assert!(
        text.contains("there PCP 5, one way, idle: the talker's CLOCK_TAI is at most 0")
            && text.contains("off, by ptp4l"),
        "{text}"
    );
    let report = fs::read_to_string(scratch.path("run/report.html")).expect("a report");
    assert!(report.contains("the talker's CLOCK_TAI is at most "));
    // By chance it is right to a nanosecond.
    write("1ns", &here);
    let refused = (0..5).any(|_| {
        let done = lab("run my.toml --into no");
        _ = fs::remove_dir_all(scratch.path("no"));
        let told = unwrapped(&done.err);
        let whose = format!(
            "the schedule there with max-clock-offset 0.001 µs: the host far ({}): CLOCK_TAI may be ",
            hosts.b.ipv4
        );
        !done.status.success()
            && told.contains(&whose)
            && told.contains(" µs off, by ptp4l; let it settle, or ask for less")
    });
    assert!(refused);
    // Who kept it has ended.
    drop(follows);
    write("50ms", &here);
    let told = unwrapped(&lab("run my.toml --into gone").bad());
    assert!(told.contains("far (") && told.contains("ptp4l: "), "{told}");
    server.interrupt().good();
    common::assert_clean(&hosts.a);
}

#[test]
fn a_server_that_may_not_says_so() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let hosts = common::lab("lab-else", 1);
    let server = common::start(&hosts.b, "serve {} --insecure");
    server.wait_for("UDP port");
    let mut content = HEAD.to_owned() + &far(hosts.b.ipv4);
    content += "[[probe]]\nname = \"p\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\n\
                [[schedule]]\nname = \"s\"\nfrom = \"me\"\nto = \"far\"\nclass = [\"5:0us:500us\"]\n";
    scratch.lab(&content);
    let lab = |line: &str| start_at(&hosts.a, &scratch, line).end();
    let checked = unwrapped(&lab("check my.toml").good().out);
    let row = format!("Not to be had here, s PCP 5: the host far ({}): ", hosts.b.ipv4);
    assert!(
        checked.contains(&row) && checked.contains("start it with --lab"),
        "{checked}"
    );
    let result = result(&lab("run my.toml --into run --json").good().out);
    let [probe, class] = &result.cells[..] else {
        panic!("{result:#?}")
    };
    check_cell(probe);
    let why = class.unavailable.as_deref().unwrap_or_default();
    assert!(
        why.contains("refuses") && why.contains("start it with --lab"),
        "{class:#?}"
    );
    drop(server);
    common::assert_clean(&hosts.a);
}

/// Somebody presses Ctrl-C while the other machine talks: what was begun there ends, and its server goes on and has its sockets again.
#[test]
fn a_run_that_is_interrupted_leaves_the_server_as_it_was() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let hosts = common::lab("lab-else", 1);
    let server = common::start(&hosts.b, "serve {} --insecure --lab");
    server.wait_for("UDP port");
    let mut content = HEAD.replace("300ms", "60s") + &far(hosts.b.ipv4);
    content += "[[schedule]]\nname = \"s\"\nfrom = \"far\"\nto = \"me\"\nvia = \"af-xdp\"\nuncertainty = \"20ms\"\nclass = [\"5:0us:500us\"]\n";
    scratch.lab(&content);
    let run = start_at(&hosts.a, &scratch, "run my.toml --into run --json");
    server.wait_for("a talker for a lab");
    let done = run.interrupt();
    assert!(!done.status.success(), "{}", done.err);
    let ping = format!("ping {} --far-via af-xdp --count 5", hosts.b.ipv4);
    let again = || common::run(&hosts.a, &ping).status.success();
    assert!(wait_until(common::PATIENCE, again), "it answers again");
    server.interrupt().good();
    common::assert_clean(&hosts.a);
}
