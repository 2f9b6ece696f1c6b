//! Starts that cannot be, or that come upon what others have left: refused or mended, and nothing is left behind.

use std::path::{Path, PathBuf};

use ringside_bpf::XdpMode;
use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig};

use crate::common::Folder;
use crate::common::daemon::{Daemon, binary, configure, refusal};

/// A gateway's interface, and what belongs to it.
struct Odd {
    lab: Lab,
    pins: PathBuf,
}

impl Odd {
    fn new(tag: &str) -> Self {
        // A name as VLANs have.
        let config = VethConfig {
            tag: tag.to_owned(),
            ..VethConfig::named("eth0.7", "peer")
        };
        let lab = Lab::veth(config).expect("veth");
        let pins = Path::new("/sys/fs/bpf").join(format!("ringside-{}", lab.a.ns.name()));
        Self { lab, pins }
    }

    fn end(&self) -> &End {
        &self.lab.a
    }

    /// A configuration in a new folder, with pins or without, and its command.
    fn command(&self, folder: &Folder, pins: Option<&Path>, more: &str) -> std::process::Command {
        let mut text = format!(
            "[path]\ninterface = \"{}\"\nmode = \"native\"\ncached-neighbors = 1000\ncached-connections = 1000\n",
            self.end().interface.name()
        );
        if let Some(pins) = pins {
            text.push_str(&format!("pins = \"{}\"\n", pins.display()));
        }
        let config = configure(folder, "store.db", &format!("{text}{more}"));
        let mut command = self.end().ns.command(binary().get_program());
        command.arg("--config").arg(config);
        command
    }

    fn start(&self, folder: Folder, pins: Option<&Path>) -> Daemon {
        let command = self.command(&folder, pins, "");
        Daemon::spawn(folder, command)
    }

    fn refused(&self, pins: Option<&Path>, more: &str) -> String {
        refusal(self.command(&Folder::new(), pins, more))
    }

    /// No program on the interface, and no pins.
    fn is_untouched(&self) -> bool {
        self.end().state().expect("its state").xdp.is_none() && !self.pins.exists()
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.pins);
    }
}

#[test]
fn two_gateways_do_not_share_an_interface() {
    if !is_root() {
        return;
    }
    let odd = Odd::new("two");
    let first = odd.start(Folder::new(), Some(&odd.pins));
    let said = odd.refused(Some(&odd.pins), "");
    assert!(
        said.contains("is in use by another gateway: stop that one, or give"),
        "{said}"
    );
    let other = PathBuf::from(format!("{}-other", odd.pins.display()));
    for pins in [None, Some(&*other)] {
        let said = odd.refused(pins, "");
        assert!(
            said.contains("putting the fast path on") && said.contains("another program is attached"),
            "{said}"
        );
        assert!(!other.exists(), "it leaves its pins behind");
    }
    let mut unpin = odd.command(&first.folder, Some(&odd.pins), "");
    unpin.arg("--unpin");
    assert!(refusal(unpin).contains("is in use by another gateway"));
    // Its health is no question: there is no XDP program at the other end.
    first.ok(&["stats"]);
    // Nor do they share a socket, although each has its store.
    let config = first.folder.join("second.toml");
    let text = std::fs::read_to_string(first.folder.join("gateway.toml")).expect("a file");
    std::fs::write(&config, text.replace("store.db", "other.db")).expect("a file");
    let mut second = binary();
    second.arg("--config").arg(config);
    let said = refusal(second);
    assert!(
        said.contains("api.socket") && said.contains("is in use by another process"),
        "{said}"
    );
    first.ok(&["stats"]);
    first.stop();
}

#[test]
fn what_somebody_else_has_is_told_before_anything_is_touched() {
    if !is_root() {
        return;
    }
    let odd = Odd::new("taken");
    let taken = odd
        .end()
        .run(|| std::net::TcpListener::bind("127.0.0.1:0"))
        .expect("listens");
    let address = taken.local_addr().expect("an address");
    let said = odd.refused(Some(&odd.pins), &format!("[metrics]\nlisten = \"{address}\""));
    assert!(
        said.contains(&format!("metrics.listen {address}: Address already in use")),
        "{said}"
    );
    assert!(odd.is_untouched());
    // The program of somebody else stays, and so does the folder as it was.
    let sizes = Sizes {
        neighbors: 1,
        connections: 1,
        queues: 1,
        sample_bytes: 4096,
    };
    let program = GatewayProgram::load(sizes).expect("loaded");
    let index = odd.end().interface.index();
    let link = odd
        .end()
        .run(|| program.attach(index, XdpMode::Native))
        .expect("attached");
    let before = odd.end().state().expect("its state").xdp;
    let said = odd.refused(Some(&odd.pins), "");
    assert!(said.contains("another program is attached"), "{said}");
    assert_eq!(odd.end().state().expect("its state").xdp, before);
    drop(link);
    assert!(odd.is_untouched());
}

/// A kernel without BTF has no tracepoints for programs: the gateway does without, and says so once.
#[test]
fn a_kernel_that_does_not_tell_what_it_drops() {
    if !is_root() {
        return;
    }
    let odd = Odd::new("untold");
    let folder = Folder::new();
    let configured = odd.command(&folder, Some(&odd.pins), "");
    let mut without = odd.end().ns.command("unshare");
    let script = "mount --bind /dev/null /sys/kernel/btf/vmlinux && exec \"$0\" \"$@\"";
    without
        .args(["--mount", "sh", "-c", script])
        .arg(configured.get_program());
    without.args(configured.get_args());
    let daemon = Daemon::spawn(folder, without);
    daemon.ok(&["health"]);
    let log = daemon.log();
    assert_eq!(log.matches("(transmit-lost)").count(), 1, "{log}");
    assert!(log.contains("packets are forwarded"), "{log}");
    let folder = daemon.kill();
    // The next one finds BTF, and counts on the same maps.
    let daemon = odd.start(folder, Some(&odd.pins));
    let log = daemon.log();
    assert!(
        log.contains("adopted=true") && !log.contains("(transmit-lost)"),
        "{log}"
    );
    daemon.stop();
}

#[test]
fn pins_that_are_damaged_are_made_anew() {
    if !is_root() {
        return;
    }
    let odd = Odd::new("damaged");
    let maps = odd.pins.join("maps");
    let mut folder = odd.start(Folder::new(), Some(&odd.pins)).kill();
    let damages: [&dyn Fn(); 3] = [
        // Who was killed while it made or removed them has left a part.
        &|| std::fs::remove_file(maps.join("neighbors")).expect("removed"),
        &|| std::fs::remove_file(maps.join("state")).expect("removed"),
        // Another map in a place.
        &|| std::fs::rename(maps.join("connections"), maps.join("state")).expect("moved"),
    ];
    for damage in damages {
        damage();
        let daemon = odd.start(folder, Some(&odd.pins));
        daemon.ok(&["health"]);
        assert!(daemon.log().contains("adopted=false"), "{}", daemon.log());
        folder = daemon.kill();
    }
    let daemon = odd.start(folder, Some(&odd.pins));
    assert!(daemon.log().contains("adopted=true"), "{}", daemon.log());
    let folder = daemon.stop();
    // What is not the gateway's stays.
    let strange = odd.pins.join("strange");
    std::fs::create_dir(&strange).expect("made");
    let mut unpin = odd.command(&folder, Some(&odd.pins), "");
    assert!(unpin.arg("--unpin").status().expect("runs").success());
    let left: Vec<_> = std::fs::read_dir(&odd.pins)
        .expect("read")
        .map(|file| file.expect("a file").path())
        .collect();
    assert_eq!(left, [strange]);
    assert_eq!(odd.end().state().expect("its state").xdp, None);
}

#[test]
fn a_start_directly_after_a_kill_takes_the_fast_path_over() {
    if !is_root() {
        return;
    }
    let odd = Odd::new("at-once");
    let start = |folder| odd.start(folder, Some(&odd.pins));
    let mut daemon = start(Folder::new());
    for _ in 0..5 {
        daemon = daemon.kill_and_start(start);
        daemon.ok(&["stats"]);
        assert!(daemon.log().contains("adopted=true"), "{}", daemon.log());
    }
    daemon.stop();
}

#[test]
fn another_mode_holds_although_the_fast_path_went_on() {
    if !is_root() {
        return;
    }
    let odd = Odd::new("mode");
    let mode = || odd.end().state().expect("its state").xdp.map(|xdp| xdp.mode);
    let mut folder = odd.start(Folder::new(), Some(&odd.pins)).kill();
    assert_eq!(mode(), Some(ringside_nic::XdpMode::Native), "it goes on");
    for (before, now, expected) in [
        ("native", "generic", ringside_nic::XdpMode::Generic),
        ("generic", "native", ringside_nic::XdpMode::Native),
    ] {
        let command = odd.command(&folder, Some(&odd.pins), "");
        let config = folder.join("gateway.toml");
        let text = std::fs::read_to_string(&config).expect("a file");
        std::fs::write(&config, text.replace("mode = \"native\"", &format!("mode = \"{now}\""))).expect("a file");
        let daemon = Daemon::spawn(folder, command);
        daemon.ok(&["stats"]);
        assert_eq!(mode(), Some(expected), "{before}: {}", daemon.log());
        folder = daemon.kill();
        assert_eq!(mode(), Some(expected), "it goes on");
    }
}

#[test]
fn an_interface_that_is_missing_at_the_start_is_waited_for() {
    if !is_root() {
        return;
    }
    let odd = Odd::new("late");
    let both = |folder: &Folder, names: &str| {
        let command = odd.command(folder, None, "");
        let config = folder.join("gateway.toml");
        let text = std::fs::read_to_string(&config).expect("a file");
        std::fs::write(&config, text.replace("\"eth0.7\"", names)).expect("a file");
        command
    };
    // With none of them nothing can be forwarded.
    let said = refusal(both(&Folder::new(), "[\"late0\", \"late1\"]"));
    assert!(said.contains("late0") && said.contains("eth0.7"), "{said}");
    let folder = Folder::new();
    let command = both(&folder, "[\"late0\", \"eth0.7\"]");
    let mut daemon = Daemon::spawn(folder, command);
    daemon.wait("its complaint", |daemon| {
        daemon.health().contains("the interface late0 is gone")
    });
    crate::bed::ip(&odd.end().ns, "link add late0 type veth peer name late1");
    crate::bed::ip(&odd.end().ns, "address add 192.0.2.77/24 dev late0");
    crate::bed::ip(&odd.end().ns, "link set late1 up");
    crate::bed::ip(&odd.end().ns, "link set late0 up");
    daemon.wait("it has it", |daemon| {
        daemon.log().contains("packets are forwarded again")
    });
    assert!(!daemon.health().contains("late0 is gone"), "{}", daemon.health());
    daemon.stop();
}
