//! `ringside doctor`: what it finds on a veth, on what is in use, and to whom; that commands mend what they are said to.

use std::fs;
use std::process::Command;

use crate::common;
use crate::common::{
    Done, MODES, Running, assert_clean, lab, lab_with, readable_copy, ringside, run, settings, start_receiver,
};
use ringside_netlab::testing::{self, is_root};
use ringside_netlab::{End, Lab, VethConfig, wait_until};
use serde_json::Value;

/// What `--json` told; the exit status has to be the one that it says.
fn json(done: &Done) -> Value {
    let json = done.json();
    assert_eq!(json["schema"], "ringside.doctor/1");
    let status = json["exit_status"].as_i64().unwrap();
    assert_eq!(done.status.code().map(i64::from), Some(status), "{done:#?}");
    let worst = match json["severity"].as_str().unwrap() {
        "ok" | "note" => 0,
        "warning" => 3,
        "error" => 4,
        other => panic!("{other}"),
    };
    assert_eq!(status, worst, "{done:#?}");
    json
}

fn examine(end: &End, arguments: &str) -> Value {
    json(&run(end, &format!("doctor {arguments} --json")))
}

/// The findings of that id and severity.
fn findings<'a>(json: &'a Value, id: &str, severity: &str) -> Vec<&'a Value> {
    let all = json["findings"].as_array().unwrap().iter();
    all.filter(|finding| finding["id"] == id && finding["severity"] == severity)
        .collect()
}

fn only<'a>(json: &'a Value, id: &str, severity: &str) -> &'a Value {
    match findings(json, id, severity)[..] {
        [finding] => finding,
        _ => panic!("not one {severity} {id} in {:#}", json["findings"]),
    }
}

/// The tries of a test that came to an outcome, as mode and queue.
fn tries(test: &Value, outcome: &str) -> Vec<(String, u64)> {
    let all = test["tries"].as_array().unwrap().iter();
    all.filter(|tried| tried["outcome"] == outcome)
        .map(|tried| {
            (
                tried["mode"].as_str().unwrap().to_owned(),
                tried["queue"].as_u64().unwrap(),
            )
        })
        .collect()
}

/// So many queues in the modes that a veth has.
fn all_of(queues: u64) -> Vec<(String, u64)> {
    let modes = ["native_copy", "generic"];
    modes
        .iter()
        .flat_map(|mode| (0..queues).map(|queue| ((*mode).to_owned(), queue)))
        .collect()
}

/// Runs the command that a finding gives, in the namespace of the end.
fn mend(end: &End, finding: &Value) {
    let command = finding["mend"]
        .as_str()
        .unwrap_or_else(|| panic!("no command in {finding:#}"));
    let mut shell = end.ns.command("sh");
    shell.args(["-c", command]);
    let done = Running::new(shell).end();
    assert!(done.status.success(), "{command}: {done:#?}");
}

/// On a veth pair of its own it really echoes, on each queue in each mode.
#[test]
fn the_machine_alone() {
    if !is_root() {
        return;
    }
    let lab = lab("docalone", 1);
    let before = settings(&lab.a);
    let json = examine(&lab.a, "--probes 30");
    assert_eq!(json["interface"], Value::Null);
    let veth = &json["facts"]["veth"];
    assert_eq!(tries(veth, "asked"), all_of(2), "{veth:#}");
    assert_eq!(
        tries(veth, "refused"),
        [("zero_copy".to_owned(), 0), ("zero_copy".to_owned(), 1)]
    );
    for tried in veth["tries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|tried| tried["outcome"] == "asked")
    {
        assert_eq!(
            (&tried["sent"], &tried["answered"]),
            (&30.into(), &30.into()),
            "{tried:#}"
        );
        assert!(
            tried["median_rtt_ns"].as_u64().is_some_and(|rtt| rtt > 100),
            "{tried:#}"
        );
    }
    let flows = veth["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 8);
    assert!(flows.iter().all(|flow| flow["queue"].as_u64() < Some(2)), "{flows:#?}");
    assert!(findings(&json, "veth.echo", "error").is_empty());
    let not_tested = json["not_tested"].to_string();
    assert!(not_tested.contains("ringside doctor INTERFACE"), "{not_tested}");
    for finding in json["findings"].as_array().unwrap() {
        assert_ne!(finding["what"], "", "{finding:#}");
        let fine = finding["severity"] == "ok";
        assert_eq!(finding["why"] == "", fine, "{finding:#}");
        assert!(!fine || finding["mend"].is_null(), "{finding:#}");
    }
    let interfaces = &json["facts"]["interfaces"];
    assert_eq!(
        (&interfaces[0]["name"], &interfaces[1]),
        (&"veth-a".into(), &Value::Null)
    );
    assert!(
        interfaces[0]["xdp_features"].to_string().contains("redirect"),
        "{interfaces:#}"
    );
    let host = &json["facts"]["host"];
    assert!(
        host["cpus_online"].as_u64() >= Some(1) && host["steal_percent"].is_number(),
        "{host:#}"
    );
    assert_eq!(json["facts"]["kernel"]["af_xdp"]["available"], true);
    assert_eq!(settings(&lab.a), before);
    assert_clean(&lab.a);
}

/// What is told of an interface that is only looked at; it is the same afterwards.
#[test]
fn a_veth_is_only_looked_at() {
    if !is_root() {
        return;
    }
    let lab = lab("doclook", 2);
    let before = settings(&lab.a);
    let done = run(&lab.a, "doctor {} --no-veth -v");
    assert_eq!(done.err, "", "{done:#?}");
    for part in [
        "Interface veth-a\n",
        "driver veth",
        "link up, MTU 1500",
        "→ ethtool -K veth-a rxvlan off\n",
        "no table of receive queues: on a veth a packet comes to the queue",
        "Not tested\n",
        "ringside doctor veth-a --live",
        "nothing was bound, so whether AF_XDP works is not known. Exit status",
    ] {
        assert!(done.out.contains(part), "no {part:?} in {}", done.out);
    }
    let json = examine(&lab.a, "{} --no-veth --flow tcp:192.0.2.7:4000-192.0.2.1:80");
    assert_eq!(json["facts"]["live"], Value::Null);
    assert_eq!(json["facts"]["interface"]["rx_queues"], 2);
    let flow = only(&json, "interface.flow", "note");
    assert_eq!(flow["what"], "tcp:192.0.2.7:4000-192.0.2.1:80: the queue is not known");
    assert_eq!(settings(&lab.a), before);
    assert_clean(&lab.a);
}

/// Each command makes its finding vanish.
#[test]
fn commands_mend() {
    if !is_root() {
        return;
    }
    let cpus = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let lab = lab_with(VethConfig {
        queues: cpus + 1,
        mtu: 3000,
        ipv6: false,
        ..VethConfig::tagged("docmend")
    });
    let mended = |id: &str, severity: &str| {
        let before = examine(&lab.a, "{} --no-veth");
        mend(&lab.a, only(&before, id, severity));
        let vanished = || {
            let after = examine(&lab.a, "{} --no-veth");
            findings(&after, id, severity).is_empty()
        };
        assert!(wait_until(common::PATIENCE, vanished), "{id} is still there");
    };
    // The driver of a veth tells the tag to programs that ask.
    mended("interface.rxvlan", "note");
    mended("interface.mtu", "note");
    assert_eq!(lab.a.state().unwrap().mtu, 1500);
    lab.a.set_up(false).unwrap();
    mended("interface.link", "error");
    // By the CPUs that are online, which may be more than those that may be used.
    if !findings(&examine(&lab.a, "{} --no-veth"), "interface.channels", "note").is_empty() {
        mended("interface.channels", "note");
    }
    // A program of somebody.
    let mut receiver = start_receiver(&lab.a, "rx {} --wait poll --frames 64 --filter udp:9");
    let taken = examine(&lab.a, "{} --no-veth");
    let program = only(&taken, "interface.program", "error");
    assert_eq!(program["mend"], format!("kill {}", receiver.pid()));
    assert!(
        program["what"].as_str().unwrap().contains("ringside_xsk"),
        "{program:#}"
    );
    mended("interface.program", "error");
    assert!(wait_until(common::PATIENCE, || receiver.is_over()));
    assert_clean(&lab.a);
}

/// Packets of two programs at once come out apart: there is an echo on the other side, and each queue is tried.
#[test]
fn a_live_test_with_an_echo() {
    if !is_root() {
        return;
    }
    let lab = lab("doclive", 3);
    let _echo = start_receiver(&lab.b, "echo {} --wait poll");
    // A native program on the one end of a veth changes offloads of the other.
    let before = settings(&lab.a);
    let json = examine(
        &lab.a,
        &format!("{{}} --no-veth --live --probes 30 --peer {}", lab.b.ipv4),
    );
    let live = &json["facts"]["live"];
    assert_eq!(tries(live, "asked"), all_of(3), "{live:#}");
    for tried in live["tries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|tried| tried["outcome"] == "asked")
    {
        assert_eq!(tried["by"], "echo", "{tried:#}");
        assert_eq!(
            (&tried["sent"], &tried["answered"]),
            (&30.into(), &30.into()),
            "{tried:#}"
        );
    }
    assert_eq!(live["failure"], Value::Null, "{live:#}");
    only(&json, "live.left", "ok");
    assert!(findings(&json, "live.echo", "warning").is_empty());
    assert_eq!(settings(&lab.a), before);
    assert_clean(&lab.a);
}

/// Where nothing of ours runs, the other host's kernel answers; where nobody does, it is told.
#[test]
fn a_live_test_with_any_host_and_with_none() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig {
        queues: 2,
        ..VethConfig::tagged("docicmp")
    });
    for peer in [lab.b.ipv4.to_string(), lab.b.ipv6.to_string()] {
        let json = examine(&lab.a, &format!("{{}} --no-veth --live --probes 5 --peer {peer}"));
        let live = &json["facts"]["live"];
        assert_eq!(tries(live, "asked"), all_of(2), "{peer}: {live:#}");
        for tried in live["tries"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|tried| tried["outcome"] == "asked")
        {
            assert_eq!(
                (&tried["by"], &tried["answered"]),
                (&"icmp".into(), &5.into()),
                "{peer}: {tried:#}"
            );
        }
    }
    let json = examine(&lab.a, "{} --no-veth --live");
    assert_eq!(tries(&json["facts"]["live"], "sent"), all_of(2));
    assert!(json["not_tested"].to_string().contains("--peer IP"), "{json:#}");
    // The other host hears nothing.
    let mut sysctl = lab.b.ns.command("sysctl");
    sysctl.args(["-w", "net.ipv4.icmp_echo_ignore_all=1"]);
    Running::new(sysctl).end().good();
    let json = examine(&lab.a, &format!("{{}} --no-veth --live --peer {}", lab.b.ipv4));
    let silent = findings(&json, "live.echo", "warning");
    assert_eq!(silent.len(), 4, "{json:#}");
    assert!(
        silent[0]["why"].as_str().unwrap().contains("answers ping"),
        "{silent:#?}"
    );
    assert_clean(&lab.a);
}

/// A queue of somebody is left alone, and told with who has it; the others are tried.
#[test]
fn a_queue_of_another_process() {
    if !is_root() {
        return;
    }
    let lab = lab("docbusy", 2);
    // It only transmits, so there is no XDP program to go by.
    let sender = common::start(&lab.a, &format!("tx {{}} -q 1 --rate 1 --to {} -v", lab.b.ipv4));
    sender.wait_for("queue 1");
    let json = examine(&lab.a, "{} --no-veth --live");
    let who = format!("process {} (ringside)", sender.pid());
    let bound = only(&json, "interface.bound", "warning")["what"].as_str().unwrap();
    assert!(bound.contains("queue 1") && bound.contains(&who), "{bound}");
    let taken = only(&json, "live.refused", "error")["what"].as_str().unwrap();
    assert!(
        taken.starts_with("queue 1: veth-a queue 1 is in use by another XDP socket"),
        "{taken}"
    );
    assert!(taken.contains(&who), "{taken}");
    let live = &json["facts"]["live"];
    assert_eq!(tries(live, "sent"), all_of(1), "{live:#}");
    sender.interrupt();
    // A link that is down is no fault of a mode, and told once.
    lab.a.set_up(false).unwrap();
    let json = examine(&lab.a, "{} --no-veth --live");
    let down = only(&json, "live.refused", "error")["what"].as_str().unwrap();
    assert!(down.starts_with("queues 0-1: veth-a is down"), "{down}");
    assert!(findings(&json, "live.mode", "ok").is_empty(), "{json:#}");
    lab.a.set_up(true).unwrap();
    lab.a.wait_ready().unwrap();
    assert_clean(&lab.a);
}

/// Without a driver that has XDP there is generic mode, and that is told.
#[test]
fn generic_mode_only() {
    if !is_root() {
        return;
    }
    let lab = lab("docgeneric", 1);
    let json = json(&run(&lab.a, "doctor lo --no-veth --live --json"));
    let native = only(&json, "interface.native", "warning");
    assert!(
        native["what"].as_str().unwrap().contains("generic mode only"),
        "{native:#}"
    );
    let live = &json["facts"]["live"];
    assert_eq!(tries(live, "sent"), [("generic".to_owned(), 0)], "{live:#}");
    assert_eq!(tries(live, "refused").len(), 2, "{live:#}");
    assert!(findings(&json, "live.mode", "warning").is_empty(), "{json:#}");
}

/// Anybody may ask. What is missing is told with the command that gives it, and that is right.
#[test]
fn without_privilege() {
    if !is_root() {
        return;
    }
    let lab = lab("docuser", 1);
    let program = readable_copy().with_file_name("ringside-doctor-without-privilege");
    testing::copy_program(readable_copy(), &program);
    let as_nobody = || {
        let mut setpriv = lab.a.ns.command("setpriv");
        setpriv.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--",
        ]);
        setpriv.arg(&program).args(["doctor", "veth-a", "--json"]);
        Running::new(setpriv).end()
    };
    let json_before = json(&as_nobody());
    let missing = only(&json_before, "process.capabilities", "error");
    for name in ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"] {
        assert!(missing["what"].as_str().unwrap().contains(name), "{missing:#}");
    }
    only(&json_before, "veth.test", "warning");
    assert!(
        !findings(&json_before, "kernel.unknown", "note").is_empty(),
        "{json_before:#}"
    );
    assert_eq!(json_before["exit_status"], 4);
    mend(&lab.a, missing);
    let json_after = json(&as_nobody());
    only(&json_after, "process.capabilities", "ok");
    assert!(findings(&json_after, "process.memlock", "warning").is_empty());
    fs::remove_file(&program).unwrap();
}

/// What makes no sense is told, and nothing is touched.
#[test]
fn bad_input() {
    if !is_root() {
        return;
    }
    let lab = lab("docbad", 1);
    for arguments in ["doctor nothere", "doctor nothere --json", "doctor nothere --live"] {
        let done = run(&lab.a, arguments);
        let message = done.refused();
        assert!(message.contains("no interface named 'nothere'"), "{message}");
        assert_eq!(done.status.code(), Some(1));
    }
    for (arguments, part) in [
        ("doctor --live", "<INTERFACE>"),
        ("doctor {} --peer 10.77.0.2", "--live"),
        ("doctor {} --flow 1-2", "is no flow"),
        ("doctor {} --live --deadline 0", "is no time"),
        ("doctor --probes 0", "no number from 1 on"),
    ] {
        let done = run(&lab.a, arguments);
        let message = done.refused();
        assert!(message.contains(part), "{arguments}: {message}");
        assert_eq!(done.status.code(), Some(2), "{arguments}");
    }
    let done = run(&lab.a, "doctor {} --live --watched-by 1");
    assert!(
        done.refused().contains("started by another process than 1"),
        "{done:#?}"
    );
    let done = run(&lab.a, "doctor {} --live --peer 10.77.0.99");
    assert!(done.refused().contains("10.77.0.99 does not answer ARP"), "{done:#?}");
    let done = run(&lab.a, "doctor {} --flow 192.0.2.7:1-[::1]:2");
    assert!(done.refused().contains("of one family"), "{done:#?}");
    let done = run(&lab.a, "doctor {} --json-file /nowhere/x.json");
    assert!(done.refused().contains("/nowhere/x.json"), "{done:#?}");
    assert_clean(&lab.a);
}

/// The interface of this login is spared, unless that is allowed.
#[test]
fn the_own_login() {
    if !is_root() {
        return;
    }
    let lab = lab("doclogin", 1);
    let attempt = |arguments: &str| {
        let mut command: Command = ringside(&lab.a, arguments);
        command.env("SSH_CONNECTION", format!("{} 50000 {} 22", lab.b.ipv4, lab.a.ipv4));
        Running::new(command).end()
    };
    let refused = attempt("doctor {} --no-veth --live").refused();
    assert!(refused.contains("carries the SSH connection of this login") && refused.contains("--own-connection"));
    let allowed = json(&attempt("doctor {} --no-veth --live --own-connection --json"));
    assert_eq!(tries(&allowed["facts"]["live"], "sent"), all_of(1));
    // To look at it does no harm.
    json(&attempt("doctor {} --no-veth --json"));
}

#[test]
fn the_report_goes_to_a_file_too() {
    if !is_root() {
        return;
    }
    let lab: Lab = lab("docfile", 1);
    let file = std::env::temp_dir().join(format!("ringside-doctor-{}.json", std::process::id()));
    let done = run(&lab.a, &format!("doctor {{}} --no-veth --json-file {}", file.display()));
    assert!(done.out.contains(": nothing was bound, "), "{done:#?}");
    let written: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written["interface"], "veth-a");
    fs::remove_file(&file).unwrap();
    assert_eq!(MODES.len(), 2, "the modes of a veth that these tests go by");
}
