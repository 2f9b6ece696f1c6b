//! One side goes, or the line between them.

use ringside_netlab::testing::{expect, measured};
use ringside_netlab::wait_until;

use super::*;

/// Packets that have left an interface.
fn sent_by(end: &End) -> u64 {
    end.state().expect("state").stats.tx_packets
}

/// Waits until nothing leaves an interface any more, and tells how long that took.
fn quiet_after(end: &End, begun: Instant) -> Duration {
    let mut before = sent_by(end);
    let mut last = begun.elapsed();
    let end_at = begun + Duration::from_secs(6);
    while Instant::now() < end_at {
        std::thread::sleep(Duration::from_millis(50));
        let now = sent_by(end);
        // A stray packet of the kernel's own (ARP, TCP's repeats) is no stream of probes.
        if now > before + 2 {
            last = begun.elapsed();
        }
        before = now;
    }
    last
}

#[test]
fn a_killed_server_stops_the_client_within_two_seconds() {
    measured(|| {
        let Some((lab, token, server)) = served("kill", 1, "") else {
            return Ok(());
        };
        let host = lab.b.ipv4;
        let line = format!("ping {host} {} --rate 2000 --timeout 0.2 --json", token.option());
        let near = Running::new(command(&lab.a, &line, "client"));
        server.wait_for("a session begins");
        assert!(
            wait_until(crate::common::PATIENCE, || sent_by(&lab.a) > 50),
            "{}",
            near.told()
        );
        let begun = Instant::now();
        drop(server);
        let took = quiet_after(&lab.a, begun);
        let done = near.end();
        let message = done.bad();
        assert!(message.contains("measured until then"), "{message}");
        // What was measured is told all the same.
        let document = done.document();
        assert!(
            document
                .far
                .as_ref()
                .is_some_and(|far| far.lost.is_some() && far.result.is_none())
        );
        assert!(ping_result(document).packets.delivered() > 0);
        assert_clean(&lab.a);
        expect(took < Duration::from_secs(2), format_args!("{took:?}"))
    });
}

#[test]
fn a_cut_line_stops_both_within_two_seconds_and_the_server_takes_the_next() {
    measured(|| {
        let Some((lab, token, server)) = served("cut", 1, "") else {
            return Ok(());
        };
        let host = lab.b.ipv4;
        // The connection goes over another link than the probes, so that only it is cut.
        let config = ringside_netlab::VethConfig {
            subnet: 9,
            ipv6: false,
            gro: true,
            ..ringside_netlab::VethConfig::named("m0", "m1")
        };
        let aside = Lab::join(&lab.a.ns, &lab.b.ns, config).expect("link");
        let line = format!(
            "ping {{}} --server {} --to {host} {} --rate 2000 --timeout 0.2 --json",
            aside.b.ipv4,
            token.option()
        );
        let near = Running::new(command(&lab.a, &line, "client"));
        server.wait_for("a session begins");
        assert!(
            wait_until(crate::common::PATIENCE, || sent_by(&lab.a) > 50),
            "{}",
            near.told()
        );
        aside.delete_link().expect("cut");
        let begun = Instant::now();
        let took = quiet_after(&lab.a, begun);
        let message = near.end().bad();
        assert!(
            message.contains("nothing was heard") || message.contains("broken"),
            "{message}"
        );
        server.wait_until("the end of the session", |err| {
            err.contains("nothing was heard") || err.contains("broken")
        });
        // The next one.
        client(&lab, &format!("ping {host} {} --count 5", token.option())).good();
        server.interrupt().good();
        expect(took < Duration::from_secs(2), format_args!("{took:?}"))
    });
}

#[test]
fn a_killed_client_is_forgotten() {
    let Some((lab, token, server)) = served("gone", 1, "--max-sessions 1") else {
        return;
    };
    let host = lab.b.ipv4;
    let line = format!("ping {host} {} --rate 1000", token.option());
    // One that has not read what the server sent resets the connection when it is killed.
    for (times, reads) in [(1, true), (2, false)] {
        let near = Running::new(command(&lab.a, &line, "client"));
        server.wait_for_times("a session begins", 2 * times - 1);
        if !reads {
            near.stop();
            std::thread::sleep(Duration::from_millis(700));
        }
        drop(near);
        server.wait_until("the end of the session", |err| {
            let ended = err.matches("during a session").count() == times;
            // On a busy machine the pause is longer.
            ended || !reads && err.contains("nothing was heard")
        });
        // Its place is free.
        client(&lab, &format!("ping {host} {} --count 5", token.option())).good();
    }
    server.interrupt().good();
}
