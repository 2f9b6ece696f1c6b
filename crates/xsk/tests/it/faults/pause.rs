//! Processes that stand still, and processes that want the same.

use std::time::{Duration, Instant};

use ringside_netlab::testing::{Off, expect};
use ringside_xsk::Path;
use rustix::process::Signal;

use super::common::account::{Account, Balance};
use super::common::bystander::Bystander;
use super::common::child::again;
use super::common::flow::{Flow, lanes};
use super::common::{assert_clean, lab, open, roomy, try_open};
use super::server::Server;
use super::{RECOVERY, in_every_mode};

/// Five seconds without a sign of life. What does not fit its rings is counted by its sockets, nobody takes its place, and
/// then it answers as before.
#[test]
fn a_process_that_is_stopped_goes_on_where_it_was() {
    in_every_mode("stop", stop_and_go_on);
}

fn stop_and_go_on(path: Path, tag: &str) -> Result<(), Off> {
    let lab = lab(tag, 3);
    let bystander = Bystander::beside(&lab.b);
    let (account, back) = (Account::open(&lab.a, &lab.b), Account::open(&lab.b, &lab.a));
    let mut server = Server::start(again(&lab, "serve"), path);
    server.ready();
    let client = open(&lab.a, Path::NativeCopy, |port| port.options(roomy()));
    let flow = Flow::on(client, &lab.a, &lab.b, &lanes(path, 2), 500);
    assert!(flow.answers.more(1000));

    server.signal(Signal::STOP);
    let stopped = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let answered = flow.answers.packets();
    let error = try_open(&lab.b, path, |port| port).expect_err("taken");
    let holder = format!("held by process {}", server.pid());
    assert!(error.to_string().contains(&holder), "{error}");
    std::thread::sleep(Duration::from_secs(5).saturating_sub(stopped.elapsed()));
    assert_eq!(flow.answers.packets(), answered);
    server.signal(Signal::CONT);

    let since = Instant::now();
    // More than it had in its rings.
    assert!(flow.answers.more(2000));
    let took = bystander.time_since(since);
    let answers = std::sync::Arc::clone(&flow.answers);
    let sent = flow.stop();
    let counted = server.end();
    let balance = account.close(path, sent.taken(), counted.own.rx_packets, counted.kernel);
    assert_eq!(balance, Balance::EVEN);
    assert!(counted.kernel.rx_fill_ring_empty > 0, "it stood still");
    assert_eq!(counted.own.tx_packets, counted.own.rx_packets);
    let kernel = sent.ports[0].kernel;
    let balance = back.close(Path::NativeCopy, counted.own.tx_completed, answers.packets(), kernel);
    assert_eq!(balance, Balance::EVEN);
    assert_clean(&lab.b);
    expect(took < RECOVERY, format_args!("{path}: {took:?}"))
}
