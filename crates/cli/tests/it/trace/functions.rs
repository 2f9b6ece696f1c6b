//! Where functions may be entered more is known: tried in a guest, whose kernel lets them be.

use super::backlog::{bursts, forwarded};
use super::*;
use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};

const RINGSIDE: &str = env!("CARGO_BIN_EXE_ringside");

/// For each test there, by emulated CPUs on a machine that has other things to do.
const LONG: Duration = Duration::from_secs(200);

#[test]
#[ignore = "make test-guests runs it"]
fn where_functions_may_be_entered() {
    let own = std::env::current_exe().expect("this binary");
    let kernel = Kernel::usual().expect("a kernel for guests");
    let mut config = GuestConfig::new("functions", kernel, Agent::program(RINGSIDE));
    config.programs = vec!["ip".into(), own.clone(), RINGSIDE.into()];
    config.modules = vec!["veth".into()];
    let guest = Guest::start(&config).expect("a guest");
    for test in [
        "trace::backlog::a_wait_on_a_backlog_is_a_stage_where_there_is_one",
        "trace::functions::what_was_sent_on_or_found_no_room_is_not_what_a_socket_tells_of",
    ] {
        let inside = guest
            .command(own.clone())
            .args([test, "--exact", "--include-ignored", "--nocapture"]);
        let done = inside.limit(LONG).output().expect("runs");
        let said = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(
            done.status.success() && said[0].contains("1 passed"),
            "{}",
            said.concat()
        );
    }
}

/// Packets for another socket of the same port come with those that are traced, and its queue is full: it tells of none.
#[test]
#[ignore = "where_functions_may_be_entered runs it in a guest"]
fn what_was_sent_on_or_found_no_room_is_not_what_a_socket_tells_of() {
    forwarded(54);
    let Lab { a, b, .. } = &common::lab_with(bursts(0, ["veth-a", "veth-b"]));
    let other = "10.77.0.77";
    let added =
        b.ns.command("ip")
            .args(["address", "add", &format!("{other}/24"), "dev", "veth-b"])
            .status();
    assert!(added.expect("ip").success());
    let (sender, others) = (socket(a, 0), socket(a, 0));
    let receiver = b.run(|| UdpSocket::bind((other, 7000))).expect("a socket");
    receiver.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
    let full = socket(b, 7000);
    sender.connect((other, 7000)).expect("connected");
    others.connect((b.ipv4, 7000)).expect("connected");
    // Nobody reads it.
    rustix::net::sockopt::set_socket_recv_buffer_size(&full, 1).expect("set");
    (0..100).for_each(|_| drop(others.send(&[0; 64])));
    let traced = backlog::with_others(55, &sender, &others, &receiver);
    let named = |hook: &str| traced.missing.iter().any(|missing| missing.hook.contains(hook));
    assert!(
        !named("__udp_enqueue_schedule_skb") && !named("enqueue_to_backlog"),
        "{:#?}",
        traced.missing
    );
    backlog::all_are_told(&traced);
}
