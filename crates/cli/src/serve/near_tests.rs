use ringside_measure::counters::LossCause::{self, AboveServerRate, LinkTxDropped, NoAnswer, WayBack, WayThere};
use ringside_measure::schema::{Operation, RunResult};

use super::*;

fn far(losses: &[(LossCause, u64)], told: bool) -> FarEnd {
    let mut result = RunResult::new(Operation::Echo);
    for (cause, count) in losses {
        result.packets.lose(*cause, *count);
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
    let split = |known: &[(LossCause, u64)], far: &FarEnd| {
        let mut ledger = Ledger::default();
        for (cause, count) in known {
            ledger.lose(*cause, *count);
        }
        let lost = ledger.lost();
        tell_apart(&mut ledger, far);
        let named = ledger.losses.iter().map(|loss| (loss.id.to_string(), loss.count));
        assert_eq!(ledger.lost(), lost, "none more and none less");
        named.filter(|(_, count)| *count != 0).collect::<Vec<_>>()
    };
    let name = |cause: LossCause, count| (cause.id().to_owned(), count);
    assert_eq!(
        split(&[(NoAnswer, 5)], &far(&[], false)),
        [name(NoAnswer, 5)],
        "nobody knows"
    );
    let both = far(&[(AboveServerRate, 2), (WayThere, 3)], true);
    assert_eq!(
        split(&[(NoAnswer, 9)], &both),
        [name(AboveServerRate, 2), name(WayThere, 3), name(WayBack, 4)]
    );
    // An answer that came too late to count was not lost on the way: never more than were missed.
    assert_eq!(split(&[(NoAnswer, 1)], &both), [name(AboveServerRate, 1)]);
    assert_eq!(split(&[(NoAnswer, 0)], &both), []);
    // What has not left is among what has not come there.
    assert_eq!(
        split(&[(LinkTxDropped, 3), (NoAnswer, 4)], &both),
        [name(LinkTxDropped, 3), name(AboveServerRate, 2), name(WayBack, 2)]
    );
}
