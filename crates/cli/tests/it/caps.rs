//! `ringside caps`: what is told of a veth, of loopback, of what is in use, and to whom.

use crate::common;
use crate::common::{Running, assert_clean, lab, lab_with, readable_copy, ringside, run, settings, start_receiver};
use ringside_netlab::VethConfig;
use ringside_netlab::testing::is_root;
use serde_json::Value;

/// What `--json` printed.
fn json(end: &ringside_netlab::End, arguments: &str) -> Value {
    let done = run(end, arguments).good();
    assert_eq!(done.err, "");
    done.json()
}

/// The line of the text that begins with `what`, without it, its words with a space between.
fn line(text: &str, what: &str) -> String {
    let mut lines = text.lines().map(str::trim_start);
    let rest = lines.find_map(|line| line.strip_prefix(what).filter(|rest| rest.starts_with(' ')));
    let rest = rest.unwrap_or_else(|| panic!("no line {what:?} in: {text}"));
    Vec::from_iter(rest.split_whitespace()).join(" ")
}

#[test]
fn a_veth() {
    if !is_root() {
        return;
    }
    let lab = lab("capsveth", 2);
    let before = settings(&lab.a);
    let text = run(&lab.a, "caps {} -v").good().out;
    assert_eq!(line(&text, "The device veth-a, driver veth"), "told since");
    assert_eq!(line(&text, "native XDP: drop, pass, send back"), "yes Linux 6.3");
    assert_eq!(line(&text, "AF_XDP with zero-copy"), "no Linux 6.3");
    assert_eq!(line(&text, "RX metadata: hash"), "yes Linux 6.7");
    assert_eq!(line(&text, "AF_XDP sockets"), "yes Linux 4.18");
    assert_eq!(line(&text, "link"), "up, MTU 1500");
    assert_eq!(line(&text, "channels"), "RX 2 of 2, TX 2 of 2");
    assert_eq!(line(&text, "rings"), "none that can be set");
    assert_eq!(line(&text, "XDP program"), "none");
    assert_eq!(line(&text, "TX queue 1"), "NAPI not reported, no AF_XDP socket");
    assert!(!text.contains("unknown"), "root sees everything: {text}");

    let mut json = json(&lab.a, "caps {} --json");
    json.sort_all_objects();
    let names = Vec::from_iter(json.as_object().unwrap().keys().map(String::as_str));
    let expected = [
        "device",
        "driver",
        "interface",
        "kernel",
        "schema",
        "state",
        "tool_version",
    ];
    assert_eq!(names, expected);
    assert_eq!(json["schema"], "ringside.caps/1");
    assert_eq!(
        (&json["interface"], &json["driver"]),
        (&"veth-a".into(), &"veth".into())
    );
    assert!(
        json["device"]["xdp_features"]
            .as_array()
            .unwrap()
            .contains(&"basic".into())
    );
    assert_eq!(json["kernel"]["af_xdp"]["available"], true);
    let state = &json["state"];
    let names = Vec::from_iter(state.as_object().unwrap().keys().map(String::as_str));
    let expected = [
        "carrier",
        "channels",
        "mtu_bytes",
        "napis",
        "qdiscs",
        "queues",
        "rings",
        "up",
        "xdp_program",
        "xdp_removal",
    ];
    assert_eq!(names, expected);
    assert_eq!((&state["up"], &state["mtu_bytes"]), (&true.into(), &1500.into()));
    assert_eq!((&state["channels"]["rx"], &state["rings"]), (&2.into(), &Value::Null));
    assert_eq!(state["queues"].as_array().unwrap().len(), 4);
    // GRO is on: there are NAPI instances, each with a line of the text.
    let napis = state["napis"].as_array().unwrap();
    assert_eq!(napis.len(), 2);
    for napi in napis {
        assert_eq!(napi["gro_flush_timeout_ns"], 0);
        let told = line(&text, &format!("NAPI {}", napi["id"]));
        assert!(
            told.starts_with("polled by the software interrupt, defer-hard-irqs 0"),
            "{told}"
        );
    }
    assert_eq!(settings(&lab.a), before);
    assert_clean(&lab.a);
}

/// Who uses the interface, queue by queue; and looking disturbs nobody.
#[test]
fn an_interface_in_use() {
    if !is_root() {
        return;
    }
    let lab = lab("capsused", 2);
    let receiver = start_receiver(&lab.a, "rx {} -q 1");
    let (text, json) = (run(&lab.a, "caps {} -v").good().out, json(&lab.a, "caps {} --json"));
    let id = lab.a.state().unwrap().xdp.expect("attached").prog_id;
    let pid = receiver.pid();
    let told = format!("ringside_xsk (id {id}), attached native, held by process {pid} (ringside)");
    assert_eq!(line(&text, "XDP program"), told);
    assert_eq!(line(&text, "RX queue 0"), "NAPI not reported, no AF_XDP socket");
    assert_eq!(
        line(&text, "RX queue 1"),
        "NAPI not reported, an AF_XDP socket is bound"
    );
    let program = &json["state"]["xdp_program"];
    let expected = serde_json::json!({
        "id": id, "name": "ringside_xsk", "mode": "native", "holders": [{ "pid": pid, "command": "ringside" }],
    });
    assert_eq!(program, &expected);
    let removal = format!("end process {pid} (ringside), which holds it by a bpf_link");
    assert_eq!(json["state"]["xdp_removal"], removal);
    let bound = json["state"]["queues"].as_array().unwrap().iter();
    let bound = bound.map(|queue| {
        (
            queue["kind"].as_str().unwrap(),
            queue["id"].clone(),
            queue["xsk"].clone(),
        )
    });
    let bound = Vec::from_iter(bound.filter(|(kind, ..)| *kind == "rx"));
    assert_eq!(bound, [("rx", 0.into(), false.into()), ("rx", 1.into(), true.into())]);
    receiver.interrupt();
    assert_clean(&lab.a);
}

/// It has no driver, nothing to set and no native XDP, and that is no error.
#[test]
fn loopback() {
    if !is_root() {
        return;
    }
    let lab = lab("capslo", 1);
    let text = run(&lab.a, "caps lo -v").good().out;
    assert_eq!(line(&text, "The device lo, no driver"), "told since");
    assert_eq!(line(&text, "native XDP: drop, pass, send back"), "no Linux 6.3");
    assert_eq!(line(&text, "channels"), "none that can be set");
    let json = json(&lab.a, "caps lo --json");
    assert_eq!(
        (&json["driver"], &json["state"]["channels"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(json["device"]["xdp_features"], Value::Array(Vec::new()));
}

/// One that is down is told of as it is; one that is not there is named, beside those that are.
#[test]
fn an_interface_that_is_down_or_not_there() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig::tagged("capsdown"));
    lab.a.set_up(false).unwrap();
    let text = run(&lab.a, "caps {} -v").good().out;
    assert_eq!(line(&text, "link"), "down, MTU 1500");
    assert_eq!(line(&text, "queues"), "none are active");
    assert_eq!(line(&text, "native XDP: drop, pass, send back"), "yes Linux 6.3");
    assert!(!lab.a.state().unwrap().admin_up, "left down");
    assert_eq!(
        line(&run(&lab.b, "caps {} -v").good().out, "link"),
        "up, but without a carrier, MTU 1500"
    );

    for arguments in ["caps nothere", "caps nothere --json"] {
        let message = run(&lab.a, arguments).refused();
        assert!(message.contains("no interface named 'nothere'"), "{message}");
        assert!(message.contains("there are: lo, veth-a"), "{message}");
    }
    let message = run(&lab.a, "caps").refused();
    assert!(message.contains("<INTERFACE>"), "{message}");
}

/// Anybody may ask, and is told what is missing for the rest.
#[test]
fn without_privilege() {
    if !is_root() {
        return;
    }
    let lab = lab("capsuser", 1);
    let as_nobody = |arguments: &str| {
        let mut setpriv = lab.a.ns.command("setpriv");
        setpriv.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
        ]);
        setpriv.args(["--inh-caps=-all", "--"]).arg(readable_copy());
        setpriv.args(common::words(&lab.a, arguments));
        Running::new(setpriv).end().good().out
    };
    let text = as_nobody("caps {} -v");
    assert_eq!(line(&text, "native XDP: drop, pass, send back"), "yes Linux 6.3");
    assert_eq!(line(&text, "AF_XDP sockets"), "unknown Linux 4.18");
    assert!(
        text.contains("unknown because: socket(AF_XDP) needs CAP_NET_RAW"),
        "{text}"
    );
    assert_eq!(line(&text, "channels"), "RX 1 of 1, TX 1 of 1");
    let json: Value = serde_json::from_str(&as_nobody("caps {} --json")).unwrap();
    let reason = "socket(AF_XDP) needs CAP_NET_RAW";
    let expected = serde_json::json!({ "available": null, "since": "4.18", "reason": reason });
    assert_eq!(json["kernel"]["af_xdp"], expected);
}

#[test]
fn help_shows_how() {
    if !is_root() {
        return;
    }
    let lab = lab("capshelp", 1);
    for arguments in ["caps --help", "help caps"] {
        let text = run(&lab.a, arguments).good().out;
        assert!(
            text.contains("Examples:") && text.contains("ringside caps eth0 --json"),
            "{text}"
        );
    }
    let text = run(&lab.a, "--help").good().out;
    assert!(line(&text, "caps").starts_with("Show what an interface"), "{text}");
    // A reader that goes away is no error.
    let mut shell = lab.a.ns.command("sh");
    let words = Vec::from_iter(ringside(&lab.a, "caps {}").get_args().map(|word| word.to_owned()));
    shell
        .args(["-c", "\"$0\" \"$@\" | head -n 1", env!("CARGO_BIN_EXE_ringside")])
        .args(words);
    let done = Running::new(shell).end().good();
    assert_eq!((done.out.lines().count(), &done.err[..]), (1, ""), "{done:#?}");
}
