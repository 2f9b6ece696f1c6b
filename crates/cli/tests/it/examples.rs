//! The examples of `--help` are run as they stand there, on hosts that are called what they are called there.
//!
//! ```text
//!        host                         far
//!   192.0.2.1 eth0 ───────────── eth0 192.0.2.7, 2001:db8::7, 02:00:00:00:00:01
//!             eth1 ───────────── eth1
//! ```
//!
//! What would go on for ever is interrupted, as a user would.

use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common;
use crate::common::{Done, Running, start};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, Namespace, VethConfig, wait_until};
use rustix::process::{Pid, Signal, kill_process_group};

/// After how long an example is interrupted. The first is enough for most to measure something; others
/// run again with the next.
const PATIENCE: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(60),
];

/// What an example may say instead of doing it, on a machine that has not what it takes.
const EXCUSES: &[(&str, &str)] = &[
    ("--mode zero-copy", "zero-copy"),
    ("--attached", "there is none: attach it first"),
    ("--cpus ", "is it online?"),
    ("--other-cpu 5", "--other-cpu 5: this process may run on CPUs"),
    ("--irq-cpus 2,3", "IRQ affinity cannot be set here"),
    ("--irq-cpus 2,3", "online"),
    ("--coalesce", "coalescing cannot be set here"),
    ("--queue 2", "queue 2"),
    ("--qdisc", "No such file or directory"),
    ("--rule ", "the driver does not offer this"),
    ("--max-clock-offset", "--max-clock-offset 1 µs: nobody knows"),
    ("--max-clock-offset", "by the kernel's bound"),
];

/// The commands that the tests below run the examples of.
const COVERED: [&[&str]; 6] = [
    &["rx", "fwd", "echo", "listener", "steer"],
    &["tx", "ping", "talker"],
    &["search", "impair", "compare", "sweep", "trace"],
    &["delay", "tune", "top", "caps", "doctor"],
    &["report", "completions", "man", "schema"],
    &["serve"],
];

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The examples of a command, as one types them.
fn examples(command: &str) -> Vec<String> {
    let help = help(&[command, "--help"]);
    let (_, examples) = help
        .split_once("Examples:\n")
        .unwrap_or_else(|| panic!("{command} has no examples"));
    let typed = |line: &str| {
        let line = line.strip_prefix("  ")?;
        // Behind two spaces is what it is about.
        let typed = line.split("  ").next().unwrap_or(line);
        typed.starts_with("ringside ").then(|| typed.to_owned())
    };
    let all: Vec<String> = examples
        .lines()
        .map_while(|line| (!line.is_empty()).then_some(line))
        .filter_map(typed)
        .collect();
    assert!(!all.is_empty(), "{command} has no examples");
    all
}

/// Those that need a `ringside serve` on the other host, or are one.
fn is_about_two(line: &str) -> bool {
    line.starts_with("ringside serve") || line.contains("--token-file")
}

fn for_one_host(command: &str) -> Vec<String> {
    examples(command)
        .into_iter()
        .filter(|line| !is_about_two(line))
        .collect()
}

/// The hosts, with a folder to work in.
struct Hosts {
    first: Lab,
    second: Lab,
    folder: PathBuf,
}

impl Hosts {
    fn new(tag: &str) -> Self {
        Self::with_mtu(tag, 1500)
    }

    fn with_mtu(tag: &str, mtu: u32) -> Self {
        let host = Namespace::create(&format!("{tag}-host")).unwrap();
        let far = Namespace::create(&format!("{tag}-far")).unwrap();
        let join = |name: &str, subnet| {
            let config = VethConfig {
                queues: 4,
                gro: true,
                mtu,
                subnet,
                static_neighbours: false,
                ..VethConfig::named(name, name)
            };
            Lab::join(&host, &far, config).unwrap()
        };
        let (first, second) = (join("eth0", 0), join("eth1", 1));
        let ip = |end: &End, arguments: &str| {
            let output = end.ns.command("ip").args(arguments.split(' ')).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        ip(&first.b, "link set eth0 address 02:00:00:00:00:01");
        ip(&first.a, "address add 192.0.2.1/24 dev eth0");
        ip(&first.b, "address add 192.0.2.7/24 dev eth0");
        ip(&first.a, "address add 2001:db8::1/64 dev eth0 nodad");
        ip(&first.b, "address add 2001:db8::7/64 dev eth0 nodad");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{tag}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self { first, second, folder }
    }

    /// Runs a line as a shell does, and sees that it did what it should, or why it cannot.
    fn run(&self, line: &str) {
        let root = self.folder.display();
        let shell = match line.contains(['|', '>']) {
            // With a pipe the last one's status counts.
            true => line.replace("> /usr", &format!("> {root}/usr")),
            false => format!("exec {}", line.replace(" /usr/share", &format!(" {root}/usr/share"))),
        };
        let shell = shell.replace("@far", &format!("@{}", self.first.b.ns.name()));
        for patience in PATIENCE {
            let is_last = patience == PATIENCE[3];
            let done = self.run_for(&shell, patience);
            assert!(!done.err.contains("panicked"), "{line}: {done:#?}");
            let excused = EXCUSES
                .iter()
                .any(|(what, why)| line.contains(what) && done.err.contains(why));
            // Its exit status tells of the machine, not of itself.
            let found = line.starts_with("ringside doctor")
                && matches!(done.status.code(), Some(3 | 4))
                && !done.out.is_empty();
            if done.status.success() || excused || found {
                return;
            }
            let too_short = [
                "nothing was sampled",
                "before anything was sampled",
                "no packet could be sent",
                "nothing was received",
                "gave no figure",
                "no packet was traced",
                "no probe passed two points",
                "it was ended before the first",
                "no packet of any class arrived",
            ];
            // SIGINT killed the program, or the command below `tune`, which then exits with 130.
            let (code, signal) = (done.status.code(), done.status.signal());
            let cut_short = signal == Some(libc::SIGINT) || code == Some(130);
            let again = !is_last && (cut_short || too_short.iter().any(|why| done.err.contains(why)));
            assert!(again, "{line}: {done:#?}");
        }
    }

    fn run_for(&self, shell: &str, patience: Duration) -> Done {
        let binary = Path::new(env!("CARGO_BIN_EXE_ringside"));
        let path = format!(
            "{}:{}",
            binary.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = self.first.a.ns.command("sh");
        command
            .args(["-c", shell])
            .process_group(0)
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("RINGSIDE_STATE_DIR", self.folder.join("state"))
            .env_remove("SSH_CONNECTION");
        let mut running = Running::new(command);
        // What stands before a pipe ends by itself.
        let is_over = wait_until(patience, || running.is_over());
        if !is_over && shell.starts_with("exec ") {
            // As a terminal does: to all programs of the line.
            let group = Pid::from_raw(running.pid().cast_signed()).expect("not 0");
            kill_process_group(group, Signal::INT).expect("it has not been waited for");
        }
        running.end()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// The port of a filter such as `udp:9`.
fn filtered_port(line: &str) -> &str {
    line.split_once("udp:").map_or("29620", |(_, rest)| {
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(rest)
    })
}

#[test]
fn each_command_has_its_examples_run() {
    let help = help(&["--help"]);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else {
            continue;
        };
        let name = name.split(' ').next().unwrap();
        // Those of `gateway` take its daemon: crates/gateway/tests/daemon.rs runs them; those of `lab` build upon each other: lab.rs.
        let covered = ["gateway", "lab"].contains(&name) || COVERED.iter().any(|names| names.contains(&name));
        assert!(covered || name == "help", "nobody runs the examples of {name}");
    }
}

/// Packets come all the time; to jumbo frames' examples in jumbo frames.
#[test]
fn those_that_receive() {
    if !is_root() {
        return;
    }
    let (usual, jumbo) = (Hosts::new("ex-rx"), Hosts::with_mtu("ex-rxj", 9000));
    fs::copy(ringside_bpf::testing::EXAMPLE_FILE, usual.folder.join("my.bpf.o")).unwrap();
    fs::write(usual.folder.join("steering.toml"), "class = [\"udp:29620\"]\n").unwrap();
    for line in COVERED[0].iter().flat_map(|command| for_one_host(command)) {
        let hosts = if line.contains("multi-buffer") { &jumbo } else { &usual };
        let sender = match line.starts_with("ringside echo") {
            // Somebody has to ask, and more than once: the echo is there only later.
            true => {
                let port = line
                    .split_once("--port ")
                    .map_or("29620", |(_, rest)| rest.split(' ').next().unwrap());
                format!("ping eth0 --to 192.0.2.1 --to-port {port} --timeout 0.1 --rate 100")
            }
            false => {
                let port = filtered_port(&line);
                format!("tx eth0 --to 192.0.2.1 --to-port {port} --rate 20000")
            }
        };
        let schedule = line.split_once("listener eth0 ").map(|(_, options)| {
            let words: Vec<&str> = options.split(' ').collect();
            let pairs = words.windows(2).filter(|pair| matches!(pair[0], "--cycle" | "--class"));
            let pairs: Vec<String> = pairs.map(|pair| pair.join(" ")).collect();
            format!("talker eth0 --to-mac ff:ff:ff:ff:ff:ff {}", pairs.join(" "))
        });
        let sender = schedule.unwrap_or(sender);
        let several = if line.contains("multi-buffer") {
            " --multi-buffer --frames 4096"
        } else {
            ""
        };
        let is_talker = sender.starts_with("talker");
        let sender = start(&hosts.first.b, &(sender + several));
        sender.wait_for(if is_talker { "a packet socket" } else { "->" });
        hosts.run(&line);
        drop(sender);
    }
}

#[test]
fn those_that_send() {
    if !is_root() {
        return;
    }
    let (usual, jumbo) = (Hosts::new("ex-tx"), Hosts::with_mtu("ex-txj", 9000));
    let far = [
        common::start_receiver(&usual.first.b, "echo eth0"),
        common::start_receiver(&jumbo.first.b, "echo eth0 --multi-buffer --frames 4096"),
    ];
    let mut iperf3 = usual.first.b.ns.command("iperf3");
    iperf3.arg("-s");
    let iperf3 = Running::new(iperf3);
    for line in COVERED[1].iter().flat_map(|command| for_one_host(command)) {
        let hosts = if line.contains("multi-buffer") { &jumbo } else { &usual };
        hosts.run(&line);
    }
    drop((far, iperf3));
}

#[test]
fn those_that_need_two_interfaces() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new("ex-two");
    // Two ports of one machine with a cable between them, and one of which is in a namespace.
    let ip = |arguments: &str| {
        let output = hosts
            .first
            .a
            .ns
            .command("ip")
            .args(arguments.split(' '))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let far = hosts.first.b.ns.name();
    fs::write(hosts.folder.join("best.toml"), "batch = 64\n").unwrap();
    for line in COVERED[2].iter().flat_map(|command| for_one_host(command)) {
        if line.contains("eth1,eth2") {
            ip("link delete eth1");
            ip("link add eth1 type veth peer name eth2");
            ip("link set eth1 up");
            if line.contains("@far") {
                ip(&format!("link set eth2 netns {far}"));
                ip(&format!("-n {far} address add 198.51.100.2/24 dev eth2"));
                ip(&format!("-n {far} link set eth2 up"));
                ip("address add 198.51.100.1/24 dev eth1");
            } else {
                ip("link set eth2 up");
            }
            hosts.run(&line);
            continue;
        }
        let device = match () {
            () if line.contains("--receive eth1") => Some(common::start_receiver(
                &hosts.first.b,
                "fwd eth0 --out eth1 --filter udp:29620",
            )),
            () if line.starts_with("ringside impair") || line.starts_with("ringside rx") => {
                let port = filtered_port(&line);
                let sender = format!("tx eth0 --to-mac ff:ff:ff:ff:ff:ff --to-port {port} --rate 1000");
                let sender = start(&hosts.first.b, &sender);
                sender.wait_for("->");
                Some(sender)
            }
            // Somebody's probes: those that nobody answers are probes, too.
            () if line.contains("--session") => Some(start(&hosts.first.b, "ping eth0 --to 192.0.2.1 --rate 1000")),
            () if line.contains("--to ") => Some(common::start_receiver(&hosts.first.b, "echo eth0")),
            () => None,
        };
        hosts.run(&line);
        drop(device);
    }
}

#[test]
fn those_about_the_host() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new("ex-host");
    let echo = common::start_receiver(&hosts.first.b, "echo eth0");
    // A turn of `delay` takes 2000 packets.
    let sender = start(&hosts.second.b, "tx eth1 --to-mac ff:ff:ff:ff:ff:ff --rate 10000");
    sender.wait_for("->");
    for line in COVERED[3].iter().flat_map(|command| for_one_host(command)) {
        hosts.run(&line);
    }
    drop((echo, sender));
}

#[test]
fn those_that_write() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new("ex-write");
    let echo = common::start_receiver(&hosts.first.b, "echo eth0");
    let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/report").join(name);
    for (from, to) in [
        ("ping.json", "ping.json"),
        ("ping.json", "before.json"),
        ("ping-by-schedule.json", "after.json"),
        ("ping.json", "ours.json"),
        ("iperf3.json", "iperf3.json"),
        ("sockperf.log", "sockperf.log"),
        ("compare.json", "compare.json"),
    ] {
        fs::copy(fixture(from), hosts.folder.join(to)).unwrap();
    }
    for line in COVERED[4].iter().flat_map(|command| for_one_host(command)) {
        if let Some((_, file)) = line.split_once("> /") {
            fs::create_dir_all(hosts.folder.join(file).parent().unwrap()).unwrap();
        }
        hosts.run(&line);
    }
    drop(echo);
    assert!(hosts.folder.join("ringside-report.html").exists());
    assert!(hosts.folder.join("usr/share/man/man1/ringside-rx.1").exists());
}

#[test]
fn those_about_two_hosts() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new("ex-serve");
    let token = hosts.folder.join("ringside.token");
    let all = COVERED.iter().flat_map(|commands| commands.iter());
    for line in all
        .flat_map(|command| examples(command))
        .filter(|line| is_about_two(line))
    {
        // The other host's lines need the one of the first, and a copy of its token.
        let server = (!line.starts_with("ringside serve"))
            .then(|| common::start_receiver(&hosts.first.b, &format!("serve eth0 --token-file {}", token.display())));
        hosts.run(&line);
        drop(server);
    }
}
