//! What does not work is told in a paragraph, before anything was touched, and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common;
use crate::common::{Running, assert_clean, lab, lab_with, readable_copy, ringside, run, settings, start_receiver};
use ringside_bpf::{Sink, XdpMode};
use ringside_netlab::VethConfig;
use ringside_netlab::testing::is_root;

/// The five commands with what they need.
fn five(to: &impl std::fmt::Display) -> [String; 5] {
    [
        "rx {}".into(),
        format!("tx {{}} --to {to}"),
        "fwd {}".into(),
        "echo {}".into(),
        format!("ping {{}} --to {to}"),
    ]
}

#[test]
fn an_interface_that_does_not_exist() {
    if !is_root() {
        return;
    }
    let lab = lab("unknown", 1);
    for name in [
        "nothere",
        "a-name-that-is-too-long-for-an-interface",
        "veth-a/",
        "veth-a\u{e9}",
        "0",
    ] {
        for command in five(&lab.b.ipv4) {
            let message = run(&lab.a, &command.replace("{}", name)).refused();
            assert!(message.contains(&format!("no interface named '{name}'")), "{message}");
            assert!(message.contains("there are: lo, veth-a"), "{message}");
        }
    }
    let message = run(&lab.a, "fwd {} --out nothere").bad();
    assert!(
        message.contains("--out (or --to): no interface named 'nothere'"),
        "{message}"
    );
    let message = run(&lab.a, "fwd {} --out {}").refused();
    assert!(message.contains("leave --out (or --to) out"), "{message}");
    assert_clean(&lab.a);
}

#[test]
fn an_interface_that_is_down() {
    if !is_root() {
        return;
    }
    let lab = lab("down", 1);
    lab.a.set_up(false).unwrap();
    let before = settings(&lab.a);
    for command in five(&lab.b.ipv4) {
        let message = run(&lab.a, &command).refused();
        assert!(
            message.contains("veth-a is down; bring it up first: ip link set dev veth-a up"),
            "{message}"
        );
    }
    assert_eq!(settings(&lab.a), before, "it was not brought up for us");
    assert_eq!(lab.a.state().unwrap().xdp, None);
}

/// As an ordinary user, and as one who is root without capabilities.
#[test]
fn no_privilege() {
    if !is_root() {
        return;
    }
    let lab = lab("privilege", 1);
    for user in [
        &[
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
        ][..],
        &["--bounding-set=-all"][..],
    ] {
        for command in five(&lab.b.ipv4) {
            let mut setpriv = lab.a.ns.command("setpriv");
            setpriv.args(user).args(["--inh-caps=-all", "--"]);
            // The file may lie where only its owner looks.
            let tool = readable_copy();
            setpriv.arg(&tool).args(common::words(&lab.a, &command));
            let message = Running::new(setpriv).end().refused();
            assert!(
                message.contains("CAP_NET_RAW") || message.contains("CAP_BPF"),
                "{command}: {message}"
            );
            assert!(message.contains("run as root, or"), "{command}: {message}");
        }
    }
    assert_clean(&lab.a);
}

#[test]
fn a_queue_that_does_not_exist() {
    if !is_root() {
        return;
    }
    let lab = lab("queue", 2);
    for command in five(&lab.b.ipv4) {
        let message = run(&lab.a, &format!("{command} -q 2")).refused();
        assert!(message.contains("veth-a has no queue 2: it has 2"), "{message}");
        assert!(message.contains("ethtool -L veth-a"), "{message}");
        let message = run(&lab.a, &format!("{command} -q 1,1")).refused();
        assert!(message.contains("each only once"), "{message}");
    }
    assert_clean(&lab.a);
}

/// Somebody else's XDP program stays where it is; its name, its id and how to detach it are told.
#[test]
fn a_foreign_program() {
    if !is_root() {
        return;
    }
    let lab = lab("foreign", 1);
    let sink = Sink::load(Default::default()).expect("loads");
    let link = lab
        .a
        .run(|| sink.attach(lab.a.interface.index(), XdpMode::Native))
        .expect("attaches");
    let id = lab.a.state().unwrap().xdp.expect("attached").prog_id;
    for command in [
        "rx {}".to_owned(),
        "fwd {}".into(),
        "echo {}".into(),
        format!("ping {{}} --to {}", lab.b.ipv4),
    ] {
        let message = run(&lab.a, &command).refused();
        assert!(
            message.contains("veth-a already has an XDP program: ringside_sink"),
            "{message}"
        );
        assert!(message.contains(&format!("(id {id}, attached native")), "{message}");
        let holder = format!("end process {} ", std::process::id());
        assert!(message.contains(&holder), "{message}");
        assert_eq!(lab.a.state().unwrap().xdp.expect("still attached").prog_id, id);
    }
    // Sending needs no program and disturbs none.
    run(&lab.a, &format!("tx {{}} --to {} --count 5", lab.b.ipv4)).good();
    assert_eq!(lab.a.state().unwrap().xdp.expect("still attached").prog_id, id);
    drop(link);

    // Attached by `ip`, it has no holder: the command that removes it is told, and works.
    let ip = |arguments: &[&str]| {
        let output = lab.a.ns.command("ip").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let object = compiled("somebody_elses");
    for mode in ["xdp", "xdpgeneric"] {
        ip(&["link", "set", "dev", "veth-a", mode, "obj", &object, "sec", "xdp"]);
        let message = run(&lab.a, "rx {}").refused();
        assert!(message.contains("somebody_elses"), "{message}");
        let advice = message.rsplit("To remove it: ").next().unwrap().trim();
        let words: Vec<&str> = advice.split_whitespace().collect();
        assert_eq!(words[0], "ip", "{message}");
        assert!(lab.a.state().unwrap().xdp.is_some());
        ip(&words[1..]);
        assert_eq!(lab.a.state().unwrap().xdp, None, "{advice}");
    }
    fs::remove_file(object).unwrap();
    // libxdp's program calls those of several users, and has pinned them: `ip` would leave the
    // pins.
    let object = compiled("xdp_dispatcher");
    ip(&["link", "set", "dev", "veth-a", "xdp", "obj", &object, "sec", "xdp"]);
    let message = run(&lab.a, "rx {}").refused();
    assert!(
        message.contains("To remove it: xdp-loader unload veth-a --all"),
        "{message}"
    );
    ip(&["link", "set", "dev", "veth-a", "xdp", "off"]);
    fs::remove_file(object).unwrap();
    assert_clean(&lab.a);
}

/// Returns an object file with an XDP program of this name, which passes all packets.
fn compiled(name: &str) -> String {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.o", std::process::id()));
    let source = object.with_extension("c");
    let text = format!("__attribute__((section(\"xdp\"), used)) int {name}(void *ctx) {{ return 2; }}\n");
    fs::write(&source, text).unwrap();
    let clang = std::process::Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status();
    assert!(clang.expect("clang").success());
    fs::remove_file(source).unwrap();
    object.to_str().unwrap().to_owned()
}

/// A file that is no BPF object is named, with what it should be.
#[test]
fn a_program_file_that_is_no_object() {
    if !is_root() {
        return;
    }
    let lab = lab("noobject", 1);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for file in [manifest, "/bin/true"] {
        let message = run(&lab.a, &format!("rx {{}} --program {file}")).refused();
        assert!(
            message.contains(file) && message.contains("it is not a BPF object"),
            "{message}"
        );
    }
    assert_clean(&lab.a);
}

/// A second instance is told who was first.
#[test]
fn a_second_instance() {
    if !is_root() {
        return;
    }
    let lab = lab("instance", 2);
    let first = start_receiver(&lab.a, "rx {} -q 0");
    for queues in ["-q 0", "-q 1", ""] {
        let message = run(&lab.a, &format!("rx {{}} {queues}")).refused();
        assert!(
            message.contains(&format!("end process {} (ringside)", first.pid())),
            "{message}"
        );
    }
    // Sending on another queue goes beside it; on the same one it does not.
    run(&lab.a, &format!("tx {{}} -q 1 --to {} --count 5", lab.b.ipv4)).good();
    let done = run(&lab.a, &format!("tx {{}} -q 0 --to {} --count 5", lab.b.ipv4));
    assert!(done.err.starts_with("veth-a queue 0 is in use; waiting"), "{done:#?}");
    let message = done.bad();
    assert!(
        message.contains("veth-a queue 0 is in use by another XDP socket"),
        "{message}"
    );
    assert!(
        message.contains(&format!("held by process {} (ringside)", first.pid())),
        "{message}"
    );
    assert!(lab.a.state().unwrap().xdp.is_some(), "the first one's program stays");
    first.signal(libc::SIGINT);
    first.end();
    // And when the first one ends, the next begins at once.
    start_receiver(&lab.a, "rx {}").interrupt();
    assert_clean(&lab.a);
}

#[test]
fn an_mtu_above_the_frame_size() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig {
        mtu: 3000,
        ipv6: false,
        ..VethConfig::tagged("mtu")
    });
    let before = settings(&lab.a);
    for command in [
        "rx {}".to_owned(),
        "fwd {}".into(),
        "echo {}".into(),
        format!("ping {{}} --to {}", lab.b.ipv4),
    ] {
        let message = run(&lab.a, &command).refused();
        assert!(message.contains("veth-a has MTU 3000"), "{message}");
        assert!(
            message.starts_with("ringside: without --multi-buffer: veth-a has MTU")
                && message.contains("use frames of 4096 bytes, or")
                && message.contains("lower the MTU: ip link set dev veth-a mtu 1770"),
            "{message}"
        );
    }
    lab.a.run(|| lab.a.interface.set_mtu(9000)).unwrap();
    let message = run(&lab.a, "rx {} --frame-size 4096").refused();
    assert!(
        message.contains("MTU 9000") && message.contains("lower the MTU"),
        "{message}"
    );
    lab.a.run(|| lab.a.interface.set_mtu(3000)).unwrap();
    assert_eq!(settings(&lab.a), before);
    assert_clean(&lab.a);
}

/// Values that cannot be meant: refused by name, before anything was opened.
#[test]
fn nonsense_values() {
    if !is_root() {
        return;
    }
    let lab = lab("values", 1);
    let (before, pins_before) = (settings(&lab.a), pins());
    let to = format!("--to {}", lab.b.ipv4);
    let cases = [
        (format!("tx {{}} {to} --rate 0"), "0 sends nothing"),
        (format!("tx {{}} {to} --rate -5"), "--rate"),
        (format!("tx {{}} {to} --rate 1e9"), "no rate"),
        (format!("ping {{}} {to} --rate 0"), "0 sends nothing"),
        (
            format!("tx {{}} {to} --size 10"),
            "--size 10: a packet of this flow has 60 to 1514 bytes",
        ),
        (format!("tx {{}} {to} --size 0"), "60 to 1514 bytes"),
        (format!("tx {{}} {to} --size 9000"), "60 to 1514 bytes"),
        (format!("tx {{}} {to} --size 99999999999"), "--size"),
        (format!("ping {{}} {to} --size 10"), "82 to 1514 bytes"),
        (format!("ping {{}} {to} --size 1515"), "82 to 1514 bytes"),
        ("rx {} --batch 0".into(), "batch = 0: a burst has 1 to"),
        ("rx {} --batch 2000000".into(), "a burst has 1 to"),
        ("rx {} --cpus 999".into(), "CPU 999"),
        ("rx {} --cpus 70000".into(), "no number"),
        ("rx {} --cpus 3-1".into(), "runs backwards"),
        (format!("tx {{}} {to} --cpus 0,999"), "CPU 999"),
        ("rx {} --frame-size 0".into(), "2048 to 4096"),
        ("rx {} --frame-size 5000".into(), "2048 to 4096"),
        (
            "rx {} --frame-size 3000".into(),
            "add --unaligned, or take 2048 or 4096",
        ),
        (format!("tx {{}} {to} --frame-size 4095"), "add --unaligned"),
        ("rx {} --unaligned --frame-size 1500".into(), "2048 to 4096"),
        (format!("tx {{}} {to} --size 1515"), "FCS; the MTU of veth-a is 1500"),
        ("rx {} --frames 0".into(), "1 to 16777216 frames"),
        ("rx {} --frames 4294967295".into(), "1 to 16777216 frames"),
        ("rx {} --ring 0".into(), "a ring has 1 to"),
        (format!("tx {{}} {to} --ring 0"), "a ring has 1 to"),
        ("rx {} --ring 4000000000".into(), "a ring has 1 to"),
        ("rx {} --headroom 1900".into(), "must leave at least 64 bytes"),
        ("rx {} --headroom 4294967295".into(), "must leave at least 64 bytes"),
        ("rx {} --priority 0".into(), "1..=99"),
        ("rx {} --busy-poll-budget 0".into(), "from 1 to 65535"),
        (format!("tx {{}} {to} --tx-budget 5"), "from 32 to the TX ring's size"),
        ("rx {} -q x".into(), "no number"),
        ("rx {} -q -1".into(), "-1"),
        ("rx {} -t 0".into(), "no time"),
        ("rx {} -t nan".into(), "no time"),
        ("rx {} -t -1".into(), "-1"),
        ("rx {} -t 1e30".into(), "no time"),
        ("rx {} -i 0.000001".into(), "0.01 seconds"),
        ("rx {} --count 0".into(), "--count"),
        (
            "rx {} --mode fast".into(),
            "no mode; one of: auto, zero-copy, native, generic",
        ),
        (
            "rx {} --mode zero-copy".into(),
            "zero-copy was required and could not be had",
        ),
        ("rx {} --wait long".into(), "spin, poll, busy-poll"),
        ("rx {} --filter udp".into(), "--filter"),
        ("rx {} --filter udp:70000".into(), "--filter"),
        ("rx {} --filter tcp:0".into(), "from 1 to 65535"),
        ("fwd {} --filter tcp:80,tcp:80".into(), "tcp:80 is given twice"),
        ("rx {} --filter dst:192.0.2.1/24".into(), "write 192.0.2.0/24"),
        ("rx {} --filter tcp:80,arp".into(), "add dst:ADDRESS"),
        (
            format!("rx {{}} --filter dst:{},arp", lab.a.ipv4),
            "is an address of this host (veth-a)",
        ),
        ("echo {} --port 0".into(), "--port"),
        ("tx {}".into(), "no destination: use --to"),
        ("ping {}".into(), "no destination: use --to"),
        ("tx {} --to nowhere".into(), "neither an IP nor a MAC address"),
        ("tx {} --to 10.0.0.1:80".into(), "--to-port"),
        (format!("tx {{}} {to} --to-port 0"), "--to-port"),
        (format!("tx {{}} {to} --to-mac 02:00:00:00:00"), "--to-mac"),
        (format!("tx {{}} {to} --from ::1"), "different families"),
        ("ping {} --to 10.77.0.77".into(), "does not answer ARP"),
        (format!("ping {{}} --to {}", lab.a.ipv4), "own address"),
        (format!("ping {{}} {to} --depth 0"), "--depth"),
        (format!("ping {{}} {to} --timeout 0"), "no time"),
        (
            format!("search {{}} {to} --count-there"),
            "--count-there: who counts there?",
        ),
        ("search".into(), "where? Give an interface"),
        (format!("search {{}} {to} --loss 100"), "percentages from 0 to 99"),
        (
            format!("search {{}} {to} --latency-at 101"),
            "percentages from 0 to 100",
        ),
        (
            format!("search {{}} {to} --from-rate 10k --to-rate 1k"),
            "rates from 10000 to 1000 packets/s",
        ),
        ("trace --lab veth -t 0.1".into(), "-t 0.1: there is no time for a turn"),
        ("delay {} --interval 1ms".into(), "--interval is the test bed's"),
        ("impair {},{}".into(), "a wire needs two interfaces"),
        ("impair {}".into(), "name the two interfaces"),
        (
            "impair {},veth-x --rate 100gbit --delay 10s".into(),
            "packets at a time, and 4194304 is the most",
        ),
        ("compare --lab veth --cpus 0,999".into(), "CPU 999 is not online"),
        (
            format!("tx {{}} {to} --cycle 1ms --launch-time 200us"),
            "launch times are of CLOCK_TAI",
        ),
        (
            format!("talker {{}} {to} --class 5:0us:100us --via af-xdp -q 0,1"),
            "a talker sends on one queue",
        ),
        (
            "listener {} --class 5:0us:100us --until-ci 1%".into(),
            "--until-ci is not for a listener",
        ),
        (
            "listener {} --cycle 1ms --class 5:900us:300us".into(),
            "setting up a schedule",
        ),
        ("rx {} --json-file /nowhere/result.json".into(), "/nowhere/result.json"),
        ("rx {} --json-file /".into(), "--json-file"),
        ("rx".into(), "<INTERFACE>"),
        ("rx {} {}".into(), "unexpected argument"),
        ("receive {}".into(), "receive"),
    ];
    let mut wrong = Vec::new();
    for (arguments, expected) in &cases {
        let done = run(&lab.a, arguments);
        let message = done.refused();
        if !message.contains(expected) {
            wrong.push(format!("{arguments}: no {expected:?} in: {message}"));
        }
        // A bad value exits with 2, a failure of this machine or of the network with 1.
        let status = if FAILURES.contains(expected) { 1 } else { 2 };
        if done.status.code() != Some(status) {
            wrong.push(format!("{arguments}: {}, not {status}: {message}", done.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(settings(&lab.a), before);
    assert_clean(&lab.a);
    // What a run left that was killed with its tests is not of these.
    let mut new = pins();
    new.retain(|pin| !pins_before.contains(pin));
    assert_eq!(new, Vec::<String>::new());
}

/// Messages of [`nonsense_values`] that are not about a value.
const FAILURES: [&str; 4] = [
    "zero-copy was required and could not be had",
    "does not answer ARP",
    "/nowhere/result.json",
    "--json-file",
];

/// On a full disk a result is not there, and not half.
#[test]
fn a_full_disk_leaves_no_half_result() {
    if !is_root() {
        return;
    }
    let lab = lab("full", 1);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("full-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4k full {0} && {1} tx veth-a --to {2} --count 3 --json-file {0}/result.json; \
         echo status $?; ls -A {0}",
        folder.display(),
        env!("CARGO_BIN_EXE_ringside"),
        lab.b.ipv4
    );
    let done = lab
        .a
        .ns
        .command("unshare")
        .args(["-m", "sh", "-c", &script])
        .output()
        .unwrap();
    let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(out.ends_with("status 1\n"), "a file is left: {out}\n{err}");
    assert!(err.contains("No space left on device"), "{err}");
    fs::remove_dir(&folder).unwrap();
}

/// A file for the result that can be had is not there until there is a result.
#[test]
fn no_result_file_without_a_result() {
    if !is_root() {
        return;
    }
    let lab = lab("file", 1);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("result-{}.json", std::process::id()));
    let name = file.display();
    run(&lab.a, &format!("rx {{}} -q 7 --json-file {name}")).refused();
    assert!(!file.exists());
    // One that is there keeps what it holds.
    fs::write(&file, "precious").unwrap();
    run(&lab.a, &format!("rx {{}} -q 7 --json-file {name}")).refused();
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    run(
        &lab.a,
        &format!("tx {{}} --to {} --count 3 --json-file {name}", lab.b.ipv4),
    )
    .good();
    serde_json::from_str::<ringside_measure::schema::Document>(&fs::read_to_string(&file).unwrap()).expect("a result");
    fs::remove_file(&file).unwrap();
}

/// Memory that cannot be had: refused with the number of bytes.
#[test]
fn more_memory_than_there_is() {
    if !is_root() {
        return;
    }
    let lab = lab("memory", 1);
    let message = run(&lab.a, "rx {} --frames 16777216 --frame-size 4096").refused();
    assert!(
        message.contains("68719476736 bytes of memory are needed for frames"),
        "{message}"
    );
    assert_clean(&lab.a);
}

/// A login through the interface is not cut off.
#[test]
fn the_own_login_is_spared() {
    if !is_root() {
        return;
    }
    let lab = lab("login", 1);
    let attempt = |arguments: &str| {
        let mut command = ringside(&lab.a, arguments);
        command
            .env("SSH_CONNECTION", format!("{} 50000 {} 22", lab.b.ipv4, lab.a.ipv4))
            .stdin(Stdio::null());
        Running::new(command).end()
    };
    for command in [
        "rx {} -t 0.1",
        "fwd {} -t 0.1",
        "impair {},lo -t 0.1",
        "rx {} -t 0.1 --filter tcp:1-1023",
        &format!("rx {{}} -t 0.1 --filter src:{},icmp,tcp:22", lab.b.ipv4),
    ] {
        let message = attempt(command).refused();
        assert!(
            message.contains("carries the SSH connection of this login"),
            "{message}"
        );
    }
    for filter in ["udp:9", "tcp:23", "ethertype:0x86dd", "dst:192.0.2.1,arp"] {
        let done = attempt(&format!("rx {{}} -t 0.1 --filter {filter}"));
        assert!(done.bad().contains("nothing was sampled"), "{filter}: {done:#?}");
    }
}

/// What a refused run could have pinned in the BPF file system.
fn pins() -> Vec<String> {
    let entries = fs::read_dir("/sys/fs/bpf").into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.contains("ringside")).collect()
}
