//! A gateway that reaches etcd and no host.

use std::time::{Duration, Instant};

use ringside_netlab::wait_until;

use super::{Fleet, How, Questions};
use crate::bed::Family;
use crate::peers::{chat, connect};
use crate::process::PATIENCE;

#[test]
fn who_has_no_link_gives_its_networks_away_and_takes_them_back() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let fleet = Fleet::new(
        "shards-link",
        How {
            // More than etcd stands still for on a busy machine.
            lease: 5,
            hands_over: false,
            learns: true,
            outer: Family::V6,
        },
    );
    let questions = Questions::new(&fleet.bed);
    let to = (fleet.bed.at(2), fleet.bed.at(2).address(Family::V4));
    let stream = connect(fleet.bed.at(1), to, 7000);
    chat(&stream).expect("goes");
    questions.during(|questions| {
        let owner = fleet.owner();
        fleet.hosts_send_to(owner);
        let one = &fleet.gateways[owner];
        // The cable at the switch: there is no carrier any more.
        let uplink = one.place.as_ref().map_or(&fleet.bed.uplinks[0], |(uplink, _)| uplink);
        let log = || one.daemon().log();
        let before = log().len();
        uplink.b.set_up(false).expect("set");
        let pulled = Instant::now();
        let other = (0..3).find(|other| *other != owner).expect("there are three");
        let gone = || {
            let all = fleet.gateways[other].json(&["fleet"]);
            let members = all["members"].as_array().cloned().unwrap_or_default();
            let found = members.iter().find(|member| member["name"] == *one.name());
            found.is_some_and(|member| member["state"] == "no-link" && member["shards"] == 0)
        };
        assert!(wait_until(PATIENCE, gone), "{}", fleet.gateways[other].json(&["fleet"]));
        questions.goes();
        eprintln!("without answers for about {:?}", pulled.elapsed());
        chat(&stream).expect("goes on");
        // All the time it was there for etcd, and says what is wrong.
        let own = one.json(&["fleet"]);
        assert_eq!((&own["membership"], &own["drained"]), (&"member".into(), &false.into()));
        let problems = one.problems();
        assert!(
            problems.contains("no interface of this gateway has a link"),
            "{problems}"
        );
        assert!(!log()[before..].contains("lease has run out"), "{}", log());
        uplink.b.set_up(true).expect("set");
        let back = Instant::now();
        fleet.settles();
        assert!(
            back.elapsed() > Duration::from_secs(2),
            "not at once: {:?}",
            back.elapsed()
        );
        fleet.hosts_send_to(owner);
        questions.goes();
        chat(&stream).expect("goes on here");
        let well = || one.daemon().ctl(&["health"]).status.success();
        assert!(wait_until(PATIENCE, well), "{}", one.problems());
    });
}
