//! What is measured with a server besides a ping.

use ringside_netlab::VethConfig;
use ringside_netlab::testing::{expect, measured};

use super::*;
use crate::common::unwrapped;

/// Short enough for a test, and content with little on a busy machine.
const SHORT: &str =
    "--quick --trial 50ms --first-trial 20ms --sum 200ms --to-rate 5000 --exceed 90 --even-if-unstable --json";

fn search_result(document: &Document) -> &SearchResult {
    match &document.result {
        Outcome::Search(result) => result,
        other => panic!("{other:?}"),
    }
}

/// Hardly anything is lost on this path.
fn all_trials_were_counted(far: &RunResult) {
    assert_reconciles(far);
    let packets = &far.packets;
    assert!(
        packets.delivered() > packets.sent / 2 && packets.delivered() <= packets.sent,
        "{packets:?}"
    );
}

/// Probes of all conditions and the load in their own flow go to the same session.
#[test]
fn under_load_the_far_end_counts_probes_and_load() {
    let Some((lab, token, server)) = served("load", 1, "") else {
        return;
    };
    let line = format!(
        "ping {} {} --under-load --rounds 5 --time 2 --rate 300 --load-rate 2000 --json",
        lab.b.ipv4,
        token.option()
    );
    let document = client(&lab, &line).good().document();
    let far = document.far.as_ref().and_then(|far| far.result.clone());
    let far = far.expect("the far end's");
    all_trials_were_counted(&far);
    let near = ping_result(document);
    let load = near.under_load.expect("asked for");
    let own = load.conditions.iter().filter(|one| one.kind == LoadKind::SelfInduced);
    let own: u64 = own.filter_map(|one| one.load_sent_packets).sum();
    assert!(own > 0);
    // Waiting for the load to begin and for late answers takes longer than was asked for: the far end does not leave before.
    for condition in &load.conditions {
        let probes = &condition.probes;
        assert!(probes.received > probes.sent * 8 / 10, "{condition:#?}");
    }
    assert_eq!(far.packets.sent, near.sequence.expect("numbered").sent + own);
    server.interrupt().good();
}

#[test]
fn a_search_through_a_server_there_and_back_and_there_only() {
    let Some((lab, token, server)) = served("search", 1, "--max-rate 100000") else {
        return;
    };
    let host = lab.b.ipv4;
    let line = format!("search {host} {} {SHORT}", token.option());
    let document = client(&lab, &line).good().document();
    let result = search_result(&document);
    assert_eq!(result.kind, LatencyKind::RoundTrip);
    let goals = &result.tables[0].goals;
    assert!(goals.iter().all(|goal| goal.finished), "{goals:#?}");
    assert!(goals.iter().any(|goal| !goal.latency.is_empty()), "{goals:#?}");
    let far = document
        .far
        .as_ref()
        .expect("the far end's")
        .result
        .as_ref()
        .expect("a result");
    assert_eq!(far.operation, Operation::Echo);
    all_trials_were_counted(far);

    let document = client(&lab, &format!("{line} --count-there --far-via udp"))
        .good()
        .document();
    let result = search_result(&document);
    assert_eq!(result.kind, LatencyKind::OneWay);
    let goals = &result.tables[0].goals;
    assert!(goals.iter().any(|goal| goal.lower_pps.is_some()), "{goals:#?}");
    assert!(
        goals.iter().all(|goal| goal.finished && goal.latency.is_empty()),
        "{goals:#?}"
    );
    let far = document
        .far
        .as_ref()
        .expect("the far end's")
        .result
        .as_ref()
        .expect("a result");
    assert_eq!(far.operation, Operation::Rx);
    all_trials_were_counted(far);

    // What the server does not allow is known before anything is sent.
    let message = client(&lab, &line.replace("--to-rate 5000", "--to-rate 200000")).bad();
    assert!(message.contains("allows 100000 (--max-rate)"), "{message}");
    let message = client(&lab, &format!("search {{}} --to {host} --count-there")).bad();
    assert!(message.contains("who counts there"), "{message}");
    server.interrupt().good();
    assert_clean(&lab.a);
}

/// A router with so many Mbit/s on its way out.
fn narrow(tag: &str, mbit: u32) -> Option<crate::common::Row> {
    let row = crate::common::routed(tag);
    let limit = format!("qdisc add dev out root tbf rate {mbit}mbit burst 16kb latency 20ms");
    let done = row
        .right
        .a
        .ns
        .command("tc")
        .args(limit.split(' '))
        .output()
        .expect("tc");
    let error = String::from_utf8_lossy(&done.stderr);
    if error.contains("unknown") || error.contains("No such file") {
        ringside_netlab::testing::skip_unsupported(&format!("the queueing discipline tbf: {error}"));
        return None;
    }
    assert!(done.status.success(), "{error}");
    Some(row)
}

#[test]
fn a_host_behind_a_router_is_found_by_its_route() {
    if !is_root() {
        return;
    }
    let row = crate::common::routed("serve-route");
    let token = TokenFile::new("route", TOKEN);
    let server = Running::new(command(
        &row.right.b,
        &format!("serve {{}} {} --wait poll", token.option()),
        "server",
    ));
    server.wait_for("on TCP port");
    let line = format!("ping {} {} --count 50 --json", row.right.b.ipv4, token.option());
    let done = Running::new(command(&row.left.a, &line, "client")).end().good();
    assert!(done.err.contains("is behind the router"), "{}", done.err);
    assert_eq!(ping_result(done.document()).packets.delivered(), 50);
    server.interrupt().good();
}

/// What a server allows is what probes without a rate of their own come at, and what load has to keep to.
#[test]
fn no_more_than_the_server_allows() {
    let Some((lab, token, server)) = served("most", 1, "--max-rate 200") else {
        return;
    };
    let host = lab.b.ipv4;
    let line = format!("ping {host} --to {host} {} -t 0.6 --json", token.option());
    let done = client(&lab, &line).good();
    assert!(done.err.contains("no more than 200 a second"), "{}", done.err);
    let packets = ping_result(done.document()).packets;
    assert!(packets.sent <= 121, "{packets:?}");
    // The server allows a burst of 256, so that a client may be late with all of these.
    let above = packets.losses.iter().find(|loss| loss.id == "above_server_rate");
    assert!(above.is_none_or(|loss| loss.count == 0), "{packets:?}");
    let line = format!("ping {host} {} --under-load=self --load-rate 195 -t 1", token.option());
    let refused = client(&lab, &line).bad();
    assert!(
        refused.contains("--load-rate") && refused.contains("200 packets/s"),
        "{refused}"
    );
    let refused = client(&lab, &format!("search {host} {}", token.option())).bad();
    assert!(refused.contains("--to-rate"), "{refused}");
    server.interrupt().good();
}

/// A link whose rate is known, and nothing else.
#[test]
fn the_capacity_of_an_unknown_path_is_found() {
    if !is_root() {
        return;
    }
    let Some(row) = narrow("serve-capacity", 40) else {
        return;
    };
    let token = TokenFile::new("capacity", TOKEN);
    let server = Running::new(command(
        &row.right.b,
        &format!("serve {{}} {} --wait poll", token.option()),
        "server",
    ));
    server.wait_for("on TCP port");
    let line = format!(
        "search {} {} --method rfc9097 --pieces 5 --json",
        row.right.b.ipv4,
        token.option()
    );
    measured(|| {
        let document = Running::new(command(&row.left.a, &line, "client"))
            .end()
            .good()
            .document();
        let table = &search_result(&document).tables[0];
        let found = table.capacity.as_ref().expect("a capacity");
        assert_eq!(found.frame_bytes, 1514);
        assert!(
            !found.pieces_bps.is_empty() && found.received_packets <= found.sent_packets,
            "{found:#?}"
        );
        let most = found.capacity_bps.expect("a whole second");
        // tbf's rate is that of frames. A busy machine may be slower. It is faster than the link
        // and its burst only in a piece that begins late.
        expect((20e6..=41.5e6).contains(&most), format_args!("{found:#?}"))
    });
    server.interrupt().good();
}

#[test]
fn one_way_times_by_one_clock() {
    let Some((lab, token, server)) = served("one-way", 1, "") else {
        return;
    };
    for via in ["af-xdp", "udp"] {
        let line = format!(
            "ping {} {} --count 100 --one-way --far-via {via} --json",
            lab.b.ipv4,
            token.option()
        );
        let document = client(&lab, &line).good().document();
        let far = document.far.clone().expect("the far end's");
        let clock = far.clock.expect("its clock");
        assert_eq!((clock.basis, clock.offset_ns), (ClockBasis::SameKernel, 0));
        assert!(
            clock.seen_offset_ns.unsigned_abs() <= clock.seen_uncertainty_ns,
            "{clock:?}"
        );
        let near = ping_result(document);
        assert_eq!(near.payload_bytes, Some(56), "with room for the far end's stamps");
        let answered = near.sequence.expect("numbered").received;
        assert!(answered > 50, "{answered}");
        let rtt = near.latency.expect("timed").raw.expect("samples");
        let [there, back] = [far.there, far.back].map(|way| way.expect("one way"));
        for way in [&there, &back] {
            assert_eq!((way.kind, way.impossible_packets), (LatencyKind::OneWay, 0));
            let times = way.raw.expect("samples");
            // On a busy machine one may be lost, there or back.
            assert!((answered..=100).contains(&times.samples), "{times:?} of {answered}");
            assert!(times.max_ns <= rtt.max_ns + clock.uncertainty_ns, "{times:?} {rtt:?}");
        }
        // There, being turned round, and back make the whole.
        let sum = there.raw.unwrap().mean_ns + back.raw.unwrap().mean_ns;
        assert!(sum <= rtt.mean_ns + clock.uncertainty_ns as f64, "{sum} {rtt:?}");
    }
    let message = client(&lab, &format!("ping {{}} --to {} --one-way --count 5", lab.b.ipv4)).bad();
    assert!(message.contains("take a `ringside serve`"), "{message}");
    server.interrupt().good();
}

/// A server that reads another CLOCK_MONOTONIC, a thousand seconds ahead, as another host's would be.
#[test]
fn one_way_times_by_clocks_that_nobody_synchronises_are_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-clocks", 1);
    let token = TokenFile::new("clocks", TOKEN);
    let mut elsewhere = lab.b.ns.command("unshare");
    elsewhere
        .args("--time --monotonic 1000 --kill-child=SIGKILL".split(' '))
        .arg(env!("CARGO_BIN_EXE_ringside"))
        .args(crate::common::words(
            &lab.b,
            &format!("serve {{}} {} --wait poll", token.option()),
        ))
        .env_remove("SSH_CONNECTION");
    let server = Running::new(elsewhere);
    server.wait_for("on TCP port");
    let line = format!("ping {} {} --count 50 --json", lab.b.ipv4, token.option());
    let done = client(&lab, &format!("{line} --one-way"));
    if Discipline::read().is_ok_and(|discipline| discipline.is_synchronised) {
        let clock = done.good().document().far.expect("far").clock.expect("its clock");
        assert_eq!(clock.basis, ClockBasis::Synchronised);
        assert!(
            clock.offset_ns.abs_diff(1_000_000_000_000) <= clock.uncertainty_ns,
            "{clock:?}"
        );
    } else {
        let message = done.bad();
        assert!(
            message.contains("synchronised") && message.contains("chrony"),
            "{message}"
        );
        // By how much it is ahead was seen all the same.
        assert!(
            message.contains("seen 1000000") || message.contains("seen 999999"),
            "{message}"
        );
        assert_eq!(done.out, "", "nothing is told");
    }
    // Round trips take one clock.
    client(&lab, &line).good();
    drop(server);
}

/// Everything that takes turns on a test bed does so between two hosts, and the connection lives on the same interface.
#[test]
fn a_comparison_with_a_far_end() {
    let Some((lab, token, mut server)) = served("compare", 1, "") else {
        return;
    };
    let host = lab.b.ipv4;
    let line = |operation: &str| {
        format!(
            "compare {host} {} --rounds 1 --slot-ms 60 --operations {operation} --json \
             --variants udp-blocking,af-packet,af-xdp-native,xdp-limit",
            token.option()
        )
    };
    for (name, operation) in [
        ("rx", Operation::Rx),
        ("tx", Operation::Tx),
        ("fwd", Operation::Fwd),
        ("ping", Operation::Ping),
    ] {
        let done = client(&lab, &line(name));
        if !done.status.success() {
            // A machine on which not one of four had its CPU for 60 ms.
            assert!(done.bad().contains("nothing was sampled"), "{done:#?}");
            continue;
        }
        let document = done.good().document();
        let far = document.far.as_ref().expect("the far end");
        assert_eq!((far.via.as_str(), &far.lost), ("af_xdp", &None));
        let Outcome::Compare(compare) = &document.result else {
            panic!("{document:#?}")
        };
        assert_eq!(compare.tables[0].operation, operation);
        for variant in &compare.tables[0].variants {
            match &variant.failure {
                None => assert!(variant.packets_pps.is_some(), "{variant:#?}"),
                // A busy machine may take the CPU away in the one round.
                Some(failure) => assert!(
                    ["CPU steal", "too few", "stopped", "no packet", "a packet arrived"]
                        .iter()
                        .any(|known| failure.contains(known)),
                    "{}: {failure}",
                    variant.name
                ),
            }
        }
    }
    // The server has its interface back.
    server.wait_for_times("XDP program ringside_xsk", 1);
    let ping = format!("ping {host} {} --count 20 --json", token.option());
    let again = || client(&lab, &ping).status.success();
    assert!(
        ringside_netlab::wait_until(crate::common::PATIENCE, again),
        "it answers again"
    );
    assert!(!server.is_over());
    // One that is without an interface cannot.
    server.interrupt().good();
    let server = serve(&lab, &format!("--via udp {}", token.option()));
    let done = client(&lab, &line("rx"));
    assert!(done.bad().contains("takes an interface"), "{done:#?}");
    drop(server);
    assert_clean(&lab.a);
    assert_clean(&lab.b);
}

/// As on a plain veth: what the far end's interface lacks is told once, with its name and the
/// command.
#[test]
fn a_comparison_names_what_the_far_end_lacks() {
    if !is_root() {
        return;
    }
    let lab = lab_without_gro("serve-gro");
    let token = TokenFile::new("gro", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    let line = format!(
        "compare {} {} --rounds 1 --slot-ms 60 --operations rx --variants udp-blocking,udp-spin,af-xdp-native",
        lab.b.ipv4,
        token.option()
    );
    let done = client(&lab, &line);
    let text = unwrapped(&format!("{} {}", done.out, done.err));
    let reason = "veth-b has GRO off, and veth-a, a veth, takes the generator's frames only while its peer has GRO on or native \
                  XDP: on the server's host: ethtool -K veth-b gro on";
    assert_eq!(text.matches(reason).count(), 1, "{text}");
    drop(server);
}

/// Two hosts as a user would make them.
fn lab_without_gro(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
    .expect("test bed")
}
