use ringside_measure::schema::{Operation, RunResult};

use super::*;

fn far(losses: &[(&'static str, u64)], told: bool) -> FarEnd {
    let mut result = RunResult::new(Operation::Echo);
    for (name, count) in losses {
        result.packets.lose(*name, *count);
    }
    FarEnd {
        via: "udp".into(),
        authenticated_by: "token".into(),
        result: told.then(|| Box::new(result)),
        ..FarEnd::default()
    }
}

#[test]
fn losses_are_where_the_two_ends_counts_differ() {
    let split = |known: &[(&'static str, u64)], far: &FarEnd| {
        let mut ledger = Ledger::default();
        for (name, count) in known {
            ledger.lose(*name, *count);
        }
        let lost = ledger.lost();
        tell_apart(&mut ledger, far);
        let named = ledger.losses.iter().map(|loss| (loss.name.to_string(), loss.count));
        assert_eq!(ledger.lost(), lost, "none more and none less");
        named.filter(|(_, count)| *count != 0).collect::<Vec<_>>()
    };
    let name = |name: &str, count| (name.to_owned(), count);
    assert_eq!(
        split(&[(NO_ANSWER, 5)], &far(&[], false)),
        [name(NO_ANSWER, 5)],
        "nobody knows"
    );
    let both = far(&[(ABOVE_RATE, 2), (THERE, 3)], true);
    assert_eq!(
        split(&[(NO_ANSWER, 9)], &both),
        [name(ABOVE_RATE, 2), name(THERE, 3), name("on the way back", 4)]
    );
    // An answer that came too late to count was not lost on the way: never more than were missed.
    assert_eq!(split(&[(NO_ANSWER, 1)], &both), [name(ABOVE_RATE, 1)]);
    assert_eq!(split(&[(NO_ANSWER, 0)], &both), []);
    // What has not left is among what has not come there.
    assert_eq!(
        split(&[("dropped by the link on the way out", 3), (NO_ANSWER, 4)], &both),
        [
            name("dropped by the link on the way out", 3),
            name(ABOVE_RATE, 2),
            name("on the way back", 2)
        ]
    );
}
