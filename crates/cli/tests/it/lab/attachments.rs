//! Ways to attach a guest that `guests.rs` does not have, by lab files: those that this machine has, in one boot; and those that it has not, which are
//! rows with the reason.

use std::fs;

use ringside_measure::schema::{LabCell, LabResult};
use ringside_netlab::attach::VHOST_NET;
use ringside_netlab::testing::is_root;
use ringside_nic::netlink::has_generic_family;

use super::broken::State;
use super::guests::{PATIENCE, all_children_of};
use super::{HOSTS, Scratch, alone, check_cell, kill, probe, quiet, result, unwrapped};

const LOAD: &str = "[[load]]\nname = \"tcp\"\nkind = \"tcp\"\nbitrate = \"8M\"\n";

/// A guest behind a link of its own, and its probe.
fn guest(attachment: &str, keys: &str) -> String {
    named_guest(attachment, attachment, keys)
}

fn named_guest(name: &str, attachment: &str, keys: &str) -> String {
    format!(
        "[[link]]\nname = {name:?}\nends = [\"left\", \"right\"]\n\
         [[guest]]\nname = {name:?}\nhost = \"right\"\nattachment = {attachment:?}\nuplink = {name:?}\n{keys}\
         [[probe]]\nname = {name:?}\nfrom = \"left\"\nto = {name:?}\nwith = \"udp\"\nrate = 200\nmeasure = [\"rtt\"]\n"
    )
}

fn cell<'r>(result: &'r LabResult, path: &str) -> &'r LabCell {
    let found = result.cells.iter().find(|cell| cell.path == path);
    found.unwrap_or_else(|| panic!("no row of {path}: {result:#?}"))
}

#[test]
fn what_this_machine_cannot_have_is_a_row_with_the_reason() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    // More than one round: what is not to be had is given up, and one quiet turn is needed of the way without a guest.
    let mut content = ["rounds = 3\nturn = \"250ms\"\nsettle = \"1ms\"\n", HOSTS].concat();
    content += "[[host]]\nname = \"me\"\nplace = \"here\"\n\
                [[guest]]\nname = \"vfio\"\nhost = \"me\"\nattachment = \"vfio\"\npci = \"ffff:1f:1f.7\"\naddress = \"192.0.2.7/24\"\n";
    let mut lacks = vec![
        ("vfio", vec!["ffff:1f:1f.7", "there is none"]),
        ("vhost-user", vec!["nowhere.sock", "No such file"]),
        ("no-program", vec!["there is no program '/nowhere/switch'", "dpdk-dev"]),
        ("ends", vec!["exit status: 3", "no queues at", "vhost-user.sock on eth"]),
    ];
    content += &guest("vhost-user", "socket = \"/run/nowhere.sock\"\n");
    content += &named_guest("no-program", "vhost-user", "program = [\"/nowhere/switch\"]\n");
    let ends = "program = [\"sh\", \"-c\", \"echo no queues at {socket} on {uplink}; exit 3\"]\n";
    content += &named_guest("ends", "vhost-user", ends);
    if !fs::exists(VHOST_NET).expect("looked") {
        content += &guest("vhost-net", "");
        lacks.push(("vhost-net", vec![VHOST_NET, "No such file"]));
    }
    if !has_generic_family("ovs_datapath").expect("asked") {
        content += &guest("ovs-kernel", "");
        lacks.push((
            "ovs-kernel",
            vec!["the kernel has no openvswitch module", "CONFIG_OPENVSWITCH"],
        ));
    }
    content += "[[probe]]\nname = \"vfio\"\nfrom = \"me\"\nto = \"vfio\"\nwith = \"udp\"\nmeasure = [\"rtt\"]\n";
    // The link of its ends has no guest behind it.
    content = content.replace(
        "ends = [\"left\", \"right\"]\n[[host]]",
        "name = \"plain\"\nends = [\"left\", \"right\"]\n[[host]]",
    );
    content += &probe("plain", "with = \"udp\"\nmeasure = [\"rtt\"]");
    scratch.lab(&content);
    // What is seen without trying is told before; the other rows can be had.
    let checked = unwrapped(&state.start(&scratch, "check my.toml").end().good().out);
    for (path, words) in &lacks {
        let row = format!("Not to be had here, {path}: the guest {path}: ");
        let told = checked.split("Not to be had").any(|told| {
            let told = format!("Not to be had{told}");
            told.starts_with(&row) && words.iter().all(|word| told.contains(word))
        });
        let is_seen = !["ends", "ovs-kernel"].contains(path);
        assert!(told || !is_seen, "{path}: {checked}");
    }
    assert!(!checked.contains("cannot be run"), "{checked}");
    let running = state.start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let done = running.end().good();
    state.assert_nothing_is_left_of(pid, &[]);
    let result = result(&done.out);
    check_cell(cell(&result, "plain"));
    assert_eq!(result.cells.len(), lacks.len() + 1);
    let report = fs::read_to_string(scratch.path("run/report.html")).expect("a report");
    for (path, words) in lacks {
        let cell = cell(&result, path);
        let why = cell.unavailable.as_deref().unwrap_or_default();
        assert!(words.iter().all(|word| why.contains(word)), "{path}: {cell:#?}");
        assert!(
            done.err.contains(&format!("{path}, round trip, idle: not to be had: ")),
            "{}",
            done.err
        );
        assert!(report.contains(&format!("{path}, round trip, idle")), "{path}");
        assert_eq!((cell.probes.sent, cell.latency.raw), (0, None), "{cell:#?}");
    }
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_is_reached_by_macvtap_a_switch_and_af_xdp() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    let hosts = "[[host]]\nname = \"left\"\n[[host]]\nname = \"right\"\n";
    let machine = "machine = \"macvtap\"\n";
    let content = [
        "rounds = 2\nturn = \"500ms\"\n",
        hosts,
        LOAD,
        &guest("macvtap", ""),
        "loads = []\n",
        &guest("ovs-userspace", machine),
        &guest("af-xdp", machine),
        "loads = []\n",
    ];
    scratch.lab(&content.concat());
    let mut running = state.start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let measures = || super::turns(&scratch.path("run")) >= 1;
    let begun = ringside_netlab::wait_until(PATIENCE, || measures() || running.is_over());
    assert!(begun, "{}", running.told());
    // QEMU, the switch and its database, the forwarder.
    let children = all_children_of(pid);
    let done = running.end_within(PATIENCE).good();
    let result = result(&done.out);
    assert!(children.len() >= 4 || result.rounds < 2, "{children:?}");
    assert_eq!(result.cells.len(), 4, "{result:#?}");
    check_load(&result);
    for cell in quiet(&result) {
        let path = cell.path.as_str();
        assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{cell:#?}");
        // Each second 200; an emulated guest may be slow, and what comes too late is lost.
        assert!(cell.probes.received > 20, "{cell:#?}");
        let times = cell.latency.corrected.expect("times");
        assert_eq!(times.samples, cell.probes.received, "{cell:#?}");
        // Whatever hands them to the guest has counted them.
        let tap = cell.tap.expect("what the guest took");
        assert!(tap.packets >= cell.probes.received && tap.bytes > 0, "{cell:#?}");
        let machine = result.machines.iter().find(|machine| machine.name == path);
        let attachment = machine.and_then(|machine| machine.attachment.as_deref());
        assert_eq!(attachment, Some(path), "{result:#?}");
        assert!(done.err.contains(&format!("| {path}")), "{}", done.err);
    }
    state.assert_nothing_is_left_of(pid, &children);
    let clean = state.start(&scratch, "clean run").end().good();
    assert_eq!(clean.err, "");
    assert!(!clean.out.contains(&format!("rs-{pid}-")), "{clean:#?}");
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_guests_memory_is_served_by_a_program_until_that_is_killed() {
    const ROUNDS: u32 = 16;
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    let hosts = "[[host]]\nname = \"left\"\n[[host]]\nname = \"right\"\n";
    let settings = format!("rounds = {ROUNDS}\nturn = \"500ms\"\n");
    scratch.lab(&[&settings, hosts, LOAD, &guest("vhost-user", "")].concat());

    let mut running = state.start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let measures = || super::turns(&scratch.path("run")) >= 2;
    let begun = ringside_netlab::wait_until(PATIENCE, || measures() || running.is_over());
    assert!(begun && !running.is_over(), "{}", running.told());
    let children = all_children_of(pid);
    let is_server = |pid: &&u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "dpdk-testpmd"
    };
    let server = *children
        .iter()
        .find(is_server)
        .expect("a program that serves the guest");
    kill(server);
    let done = running.end_within(PATIENCE);
    let told = done.bad();
    assert!(
        told.contains("dpdk-testpmd") && told.contains("signal: 9") && told.contains("--resume` goes on"),
        "{told}"
    );
    assert_eq!(done.err.matches("ringside: ").count(), 1, "one error: {}", done.err);
    state.assert_nothing_is_left_of(pid, &children);

    // The same guest once more, until all is measured.
    let running = state.start(&scratch, "run my.toml --into run --json --resume");
    let pid = running.pid();
    let done = running.end_within(PATIENCE).good();
    state.assert_nothing_is_left_of(pid, &[]);
    let result = result(&done.out);
    assert_eq!((result.cells.len(), result.rounds), (2, ROUNDS), "{result:#?}");
    // Few machines are quiet in all rounds of so many.
    let quiet = |cell: &&LabCell| cell.turns_left_out < ROUNDS / 2;
    assert!(result.cells.iter().any(|cell| quiet(&cell)), "{result:#?}");
    for cell in result.cells.iter().filter(quiet) {
        assert_eq!(
            (&cell.unavailable, cell.failed_turns, cell.tap),
            (&None, 0, None),
            "{cell:#?}"
        );
        let probes = &cell.probes;
        // Beside the load an emulated guest may answer some too late.
        let is_enough = |part: u64| probes.received * part >= probes.sent * (part - 1);
        assert!(
            probes.sent > 100 && is_enough(if cell.loads.is_empty() { 20 } else { 4 }),
            "{cell:#?}"
        );
    }
    check_load(&result);
    let machine = result.machines.iter().find(|machine| machine.name == "vhost-user");
    let attachment = machine.and_then(|machine| machine.attachment.as_deref());
    assert_eq!(attachment, Some("vhost-user"), "{result:#?}");
    assert!(done.err.contains("| vhost-user"), "{}", done.err);
}

/// Long packets come in pieces that a reader of packet sockets has room for, and are whole in the guest: with GRO at the uplink a tenth of it came, and less.
fn check_load(result: &LabResult) {
    let loaded: Vec<&LabCell> = result.cells.iter().filter(|cell| !cell.loads.is_empty()).collect();
    assert_eq!(loaded.len(), 1, "{result:#?}");
    for cell in loaded.into_iter().filter(|cell| cell.turns_left_out == 0) {
        let bits = cell.loads[0].received_bits_per_s;
        assert!(bits.is_some_and(|bits| bits > 1.5e6), "{cell:#?}");
    }
}
