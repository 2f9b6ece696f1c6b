//! A lab whose links are interfaces that this machine has, with a cable between them: those of a namespace here, of NICs in tests/guest/igb.rs.

use ringside_measure::schema::LabResult;
use ringside_netlab::Namespace;
use ringside_netlab::testing::{interfaces, is_root};

use super::common::Running;
use super::guests::PATIENCE;
use super::{Scratch, alone, assert_nothing_is_left_of, cannot_be_run, check_cell, result};

/// The machine that the lab is on.
struct Machine(std::sync::Arc<Namespace>);

impl Machine {
    /// Its interfaces, `in` and `out` of each of these cables. Packets come whole, and NAPI is there, as with NICs.
    fn with(cables: &[&str]) -> Self {
        let machine = Self(Namespace::create("lab-cabled").expect("a namespace"));
        for name in cables {
            let script = format!(
                "set -e; ip link add {name}-in type veth peer name {name}-out
                 for end in {name}-in {name}-out; do ethtool -K $end tx off gro on >/dev/null; done"
            );
            let done = machine.0.command("sh").args(["-c", &script]).output().expect("runs");
            assert!(done.status.success(), "{done:?}");
        }
        machine
    }

    fn lab(&self, scratch: &Scratch, line: &str) -> Running {
        let mut command = self.0.command(env!("CARGO_BIN_EXE_ringside"));
        command.arg("lab").args(line.split(' ')).current_dir(&scratch.0);
        Running::new(command)
    }

    fn run(&self, scratch: &Scratch) -> LabResult {
        let before = interfaces(&self.0);
        let running = self.lab(scratch, "run my.toml --into run --json");
        let pid = running.pid();
        let done = running.end_within(PATIENCE).good();
        assert_nothing_is_left_of(pid);
        assert_eq!(interfaces(&self.0), before, "{done:#?}");
        result(&done.out)
    }
}

const HOSTS: &str = "rounds = 2\nturn = \"200ms\"\nsettle = \"10ms\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n";

fn link(name: &str) -> String {
    format!("[[link]]\nname = \"{name}\"\nends = [\"a\", \"b\"]\ninterfaces = [\"{name}-in\", \"{name}-out\"]\n")
}

#[test]
fn a_link_is_two_interfaces_of_this_machine() {
    if !is_root() {
        return;
    }
    let (_alone, scratch, machine) = (alone(), Scratch::new(), Machine::with(&["one"]));
    let mut content = HOSTS.to_owned() + &link("one");
    for with in ["udp", "packet", "xsk"] {
        content += &format!("[[probe]]\nname = {with:?}\nfrom = \"a\"\nto = \"b\"\nwith = {with:?}\n");
    }
    scratch.lab(&content);
    let checked = machine.lab(&scratch, "check my.toml").end().good().out;
    assert!(
        checked.contains("link   one, a to b: the NICs one-in and one-out, MTU 1500"),
        "{checked}"
    );
    let result = machine.run(&scratch);
    assert_eq!(result.cells.len(), 6);
    result.cells.iter().for_each(check_cell);
    // One that is needed is not taken, and one that is not there is told before.
    let ip = |line: &str| machine.0.command("ip").args(line.split(' ')).status().expect("runs");
    assert!(ip("addr add 192.0.2.1/24 dev one-out").success());
    let told = machine.lab(&scratch, "run my.toml --into again").end();
    let wanted = "'one-out': it has the address 192.0.2.1; free it first";
    assert!(told.bad().contains(wanted), "{told:#?}");
    assert!(ip("link del one-in").success());
    let told = machine.lab(&scratch, "check my.toml").end();
    let wanted = "It cannot be run here: no interface named 'one-in'";
    assert!(cannot_be_run(&told).contains(wanted), "{told:#?}");
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_is_reached_by_a_nic_of_this_machine() {
    if !is_root() {
        return;
    }
    let ways = ["tap-bridge", "macvtap", "xdp", "xdp-express", "af-xdp"];
    let (_alone, scratch, machine) = (alone(), Scratch::new(), Machine::with(&["c0", "c1", "c2", "c3", "c4"]));
    let mut content = HOSTS.replace("200ms", "1s");
    for (number, way) in ways.iter().enumerate() {
        let also = if number > 0 { "machine = \"tap-bridge\"\n" } else { "" };
        content += &format!(
            "{}[[guest]]\nname = {way:?}\nhost = \"b\"\nattachment = {way:?}\nuplink = \"c{number}\"\n{also}\
             [[probe]]\nname = {way:?}\nfrom = \"a\"\nto = {way:?}\nwith = \"udp\"\nrate = 200\n",
            link(&format!("c{number}"))
        );
    }
    scratch.lab(&content);
    let result = machine.run(&scratch);
    for (cell, way) in result.cells.iter().zip(ways) {
        assert_eq!(cell.path, way);
        check_cell(cell);
        assert!(cell.probes.received > 50, "{cell:#?}");
    }
    assert_eq!(result.cells.len(), ways.len());
}
