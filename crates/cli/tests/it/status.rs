//! The exit status where a value makes no sense: 2, whoever finds it.

use std::fs;
use std::path::Path;

use crate::common::{lab, run};
use ringside_netlab::testing::is_root;

/// Values of the command line that only a command finds wrong.
const BAD: [(&str, &str); 52] = [
    ("compare fe80::1", "is an address of one link"),
    ("ping fe80::1", "is an address of one link"),
    ("search {ip}", "is an address of this host"),
    (
        "compare --lab veth --sizes 3000",
        "the MTU of veth-a is 1500, which allows 1514",
    ),
    ("trace --lab veth --cpus 0,999", "--cpus S,R: CPU 999 is not online"),
    (
        "compare --lab veth --operations tx --variants udp-spin",
        "none of the variants chosen takes part",
    ),
    ("ping {} --to 192.0.2.1 --tls", "--tls is about a `ringside serve`"),
    ("serve {}", "anybody who reaches it"),
    ("rx {} -q 7", "has no queue 7"),
    ("rx {} --threaded-napi=999", "--threaded-napi: CPU 999 is not online"),
    (
        "talker {} --to-mac 02:00:00:00:00:01 --from 2001:db8::1 --to 2001:db8::2 --class 5:0us:300us:100",
        "have no room for a probe",
    ),
    ("listener {} --class 5:0us:300us:9000", "are too long for veth-a"),
    ("tune", "which interface?"),
    ("tune {} --hold", "nothing is to be changed"),
    ("tune {} --rps 0-999 --dry-run", "--rps: CPU"),
    ("tune {} --xps 999 --dry-run", "--xps: CPU 999 is not online"),
    ("tune {} --irq-cpus 999 --dry-run", "--irq-cpus: CPU 999 is not online"),
    (
        "tune {} --threaded-napi=999 --dry-run",
        "--threaded-napi: CPU 999 is not online",
    ),
    ("tune lo --rps 0-999 --dry-run", "--rps: CPU"),
    ("steer run {}", "no class of packets is asked for"),
    ("steer run {} --class udp:7=0@999", "--class: CPU 999 is not online"),
    ("steer run {} --class udp:7 --irq 0=999", "--irq: CPU 999 is not online"),
    ("steer run {} --class udp:7 --rps 0=999", "--rps: CPU 999 is not online"),
    ("steer run {} --class udp:7 --xps 0=999", "--xps: CPU 999 is not online"),
    (
        "steer run {} --class udp:7 --pin 1:x=999",
        "--pin: CPU 999 is not online",
    ),
    (
        "steer run --lab --class udp:7 --send-cpu 999",
        "--send-cpu: CPU 999 is not online",
    ),
    ("steer run {} --file {bad}", "unknown field `rounds`"),
    ("lab check {bad}", "key rounds: 0 is out of range: 1 to 10000"),
    ("lab run {bad}", "key rounds: 0 is out of range: 1 to 10000"),
    ("lab show {bad}", "key rounds: 0 is out of range: 1 to 10000"),
    ("rx {} --config {bad}", "`rounds` is no option"),
    ("tune {} --offload nope=off", "has no offload named 'nope'"),
    // No gateway runs here: none is asked.
    ("gateway get neighbor 1 10.0.0", "\"10.0.0\" is not an IP address"),
    ("gateway get port 1 224.0.0.1", "224.0.0.1 is"),
    ("gateway get neighbor 1", "network and address are needed"),
    ("gateway get group x", "\"x\" is not the number of a security group"),
    ("gateway get group 1 2", "one number of a security group is needed"),
    ("gateway delete neighbor 1 10.0.0", "\"10.0.0\" is not an IP address"),
    ("gateway delete port 1", "network and address are needed"),
    (
        "gateway delete neighbor 1 10.0.0.7 --vni 1",
        "leave --vni, --prefix and --host out",
    ),
    (
        "gateway delete neighbors --prefix 10.0.0.0/8",
        "give its number with --vni",
    ),
    ("gateway delete groups --vni 1", "one by one"),
    (
        "gateway delete ports --host 192.0.2.1",
        "--host goes with neighbors only",
    ),
    ("gateway delete group 1 --version 18446744073709551615", "is above"),
    ("gateway list groups --vni 1", "leave --vni and --prefix out"),
    ("gateway watch groups --vni 1", "leave --vni and --prefix out"),
    ("gateway put port 1 224.0.0.1 --groups 1", "224.0.0.1 is"),
    (
        "gateway put port 1 10.0.0.7 --groups 1 --version 18446744073709551615",
        "is above",
    ),
    ("gateway apply -f {bad}", "status-"),
    ("gateway --address foo stats", "only https://HOST:PORT"),
    (
        "gateway --address https://localhost:1 stats",
        "takes --ca, --certificate and --key",
    ),
    ("gateway agent --endpoint foo", "only https://HOST:PORT"),
];

/// What is named and is not there, or does not answer, is a failure.
const FAILURES: [(&str, &str); 6] = [
    ("rx no-such-0", "no interface named"),
    ("compare --interface {},no-such-0", "no interface named"),
    ("lab check no-such.toml", "reading the lab file"),
    ("report no-such.json", "reading the result"),
    (
        "gateway --socket no-such.sock get neighbor 1 10.0.0.7",
        "connecting to the gateway",
    ),
    (
        "gateway --socket no-such.sock load no-such.csv",
        "connecting to the gateway",
    ),
];

#[test]
fn bad_values_exit_with_2_and_failures_with_1() {
    if !is_root() {
        return;
    }
    let lab = lab("status", 1);
    let bad = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("status-{}.toml", std::process::id()));
    fs::write(&bad, "rounds = 0\n").unwrap();
    let mut wrong = Vec::new();
    let cases = BAD.iter().map(|case| (case, 2));
    for ((arguments, expected), status) in cases.chain(FAILURES.iter().map(|case| (case, 1))) {
        let arguments = arguments
            .replace("{ip}", &lab.a.ipv4.to_string())
            .replace("{bad}", &bad.display().to_string());
        let done = run(&lab.a, &arguments);
        let message = done.bad();
        if done.status.code() != Some(status) || !message.contains(expected) {
            wrong.push(format!(
                "{arguments}: {}, not {status} with {expected:?}: {message}",
                done.status
            ));
        }
    }
    fs::remove_file(&bad).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
