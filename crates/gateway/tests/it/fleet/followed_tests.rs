use super::*;

const fn at(milliseconds: usize) -> Duration {
    Duration::from_millis(milliseconds as u64)
}

/// A step a second, answered 100 ms later by one gateway after the other. A packet of each stream every 100 ms, which arrives 10 ms later
/// by what its gateway has: the steps up to what `had` says of a gateway and a time.
fn record(had: impl Fn(usize, usize) -> usize) -> Record {
    let change = |step: usize| Change {
        begun: at(1000 * step),
        answered: Some((step % GATEWAYS, at(1000 * step + 100))),
    };
    let mut record = Record {
        made: [(); OBJECTS].map(|()| (0..6).map(change).collect()),
        ..Record::default()
    };
    for number in 0..60 {
        let time = 100 * number + 50;
        record.sent.push(at(time));
        for (gateway, what) in (0..GATEWAYS).flat_map(|gateway| What::ALL.map(|what| (gateway, what))) {
            let place = what.place(had(gateway, time));
            record.arrived.extend(place.map(|place| Arrival {
                gateway,
                what,
                number,
                place,
                at: at(time + 10),
            }));
        }
    }
    record
}

/// What was told a tenth of a second ago.
fn newest(time: usize) -> usize {
    1 + time.saturating_sub(110) / 1000
}

/// It happens from 2 to 4 s on.
fn during() -> During {
    During {
        from: at(2000),
        to: at(4000),
        bound: at(500),
        lost: [Some(1); GATEWAYS],
    }
}

fn well() -> Record {
    record(|_, time| newest(time))
}

/// There is one step while it happens, of which the second gateway hears at this time, and one when that is long over.
fn cut_off(until: usize) -> Record {
    let mut record = record(|gateway, time| match gateway {
        1 if (2000..until).contains(&time) => 2,
        _ if time > 5610 => 4,
        _ => newest(time).min(3),
    });
    for made in &mut record.made {
        made.truncate(4);
        made[2].answered = Some((2, at(2100)));
        (made[3].begun, made[3].answered) = (at(5500), Some((2, at(5600))));
    }
    record
}

fn with(change: impl FnOnce(&mut Record)) -> Vec<Wrong> {
    let mut record = well();
    change(&mut record);
    record.violations(&during())
}

#[test]
fn nothing_is_found_where_nothing_is() {
    assert_eq!(well().violations(&during()), []);
    let times = well().times(&during());
    assert_eq!((times.steps, times.meanwhile), (6, 3));
    assert!(times.slowest <= at(100) && times.afterwards <= at(100), "{times:?}");
    let cut_off = cut_off(4200);
    assert_eq!(cut_off.violations(&during()), []);
    let times = cut_off.times(&during());
    assert!(times.slowest >= at(2000) && times.quickest <= at(100), "{times:?}");
    assert!((at(100)..at(400)).contains(&times.afterwards), "{times:?}");
}

/// An older object after a newer one, at any time, in each stream that can show it.
#[test]
fn what_goes_back_is_found() {
    // In the middle of the third step, which all have had for long.
    for (number, step) in [(27, 3), (37, 4)] {
        for gateway in 0..GATEWAYS {
            for what in What::ALL {
                let Some(place) = what.place(step - 1).filter(|place| what.place(step) != Some(*place)) else {
                    continue;
                };
                let found = with(|record| {
                    record
                        .arrived
                        .retain(|arrival| (arrival.gateway, arrival.what, arrival.number) != (gateway, what, number));
                    let at = record.sent[number] + at(10);
                    record.arrived.push(Arrival {
                        gateway,
                        what,
                        number,
                        place,
                        at,
                    });
                });
                let is_so = |wrong: &Wrong| {
                    matches!(wrong, Wrong::Backwards { gateway: of, what: which, number: packet, had, .. }
                        if (*of, *which, *packet, *had) == (gateway, what, number, step))
                };
                assert!(found.len() == 1 && is_so(&found[0]), "{what:?}: {found:?}");
            }
        }
    }
}

/// Nothing of it was there before the first step, and a gateway may not have heard of that when the first packets come.
#[test]
fn it_may_begin_late() {
    let record = record(|gateway, time| if gateway == 2 && time < 300 { 0 } else { newest(time) });
    assert_eq!(record.violations(&during()), []);
    let late = self::record(|gateway, time| if gateway == 2 && time < 800 { 0 } else { newest(time) });
    assert!(
        !late.violations(&during()).is_empty(),
        "it is to have heard of it by then"
    );
}

/// Who has answered has it, whatever its packets have shown so far.
#[test]
fn an_answer_is_a_promise() {
    // The gateway that answers the fourth step is half a second behind.
    let behind = |gateway: usize, time: usize| match gateway {
        0 if (3000..3600).contains(&time) => 3,
        _ => newest(time),
    };
    let found = record(behind).violations(&during());
    assert!(!found.is_empty());
    assert!(
        found
            .iter()
            .all(|wrong| matches!(wrong, Wrong::Backwards { gateway: 0, had: 4, .. })),
        "{found:?}"
    );
    // Another one may be.
    let mut other = record(behind);
    other
        .made
        .iter_mut()
        .for_each(|made| made[3].answered = Some((2, at(3100))));
    assert_eq!(other.violations(&during()), []);
}

/// A change that never gets to a gateway, or too late.
#[test]
fn what_is_withheld_is_found() {
    for until in [4800, 6000] {
        let found = cut_off(until).violations(&during());
        assert!(
            found
                .iter()
                .any(|wrong| matches!(wrong, Wrong::Late { gateway: 1, due: 3, .. })),
            "{until}: {found:?}"
        );
    }
}

/// What packets have shown is not known of the next run of a gateway that begins without etcd; what it has answered is.
#[test]
fn a_restart_without_etcd_may_go_back_to_the_copy() {
    let back = |gateway: usize, time: usize| match gateway {
        0 if (2700..2900).contains(&time) => 2,
        _ => newest(time),
    };
    assert!(!record(back).violations(&during()).is_empty());
    let mut restarted = record(back);
    restarted.restarts[0].push((at(2690), at(2700)));
    assert_eq!(restarted.violations(&during()), []);
    // It goes on and on.
    let mut late = record(|gateway, time| match gateway {
        0 if (2700..2800).contains(&time) || (2900..3000).contains(&time) => 2,
        _ => newest(time),
    });
    late.restarts[0].push((at(2690), at(2700)));
    assert!(!late.violations(&during()).is_empty(), "it has had the newer one again");
    let mut answered = restarted;
    answered
        .made
        .iter_mut()
        .for_each(|made| made[2].answered = Some((0, at(2100))));
    assert!(!answered.violations(&during()).is_empty(), "it had answered");
}

#[test]
fn what_does_not_go_on_is_found() {
    let is_lost = |arrival: &Arrival| arrival.gateway == 1 && (20..24).contains(&arrival.number);
    let found = with(|record| record.arrived.retain(|arrival| !is_lost(arrival)));
    let broken = |what| Wrong::Broken {
        gateway: 1,
        what,
        packets: 4,
    };
    assert_eq!(found, [What::Moved, What::Always].map(broken));
    let mut record = well();
    record.arrived.retain(|arrival| !is_lost(arrival));
    let during = During {
        lost: [Some(1), None, Some(1)],
        ..during()
    };
    assert_eq!(record.violations(&during), []);
    let foreign = with(|record| record.foreign.push("somebody's".to_owned()));
    assert_eq!(foreign, [Wrong::Foreign("somebody's".to_owned())]);
    let nothing = with(|record| record.made.iter_mut().for_each(|made| made.truncate(1)));
    assert!(nothing.contains(&Wrong::Nothing), "{nothing:?}");
}
