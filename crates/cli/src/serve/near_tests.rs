use ringside_measure::schema::{Operation, RunResult, System};

use super::*;

fn far(losses: &[(&'static str, u64)], told: bool) -> FarEnd {
    let mut result = RunResult::new(Operation::Echo);
    for (name, count) in losses {
        result.packets.lose(*name, *count);
    }
    FarEnd {
        tool_version: String::new(),
        via: "udp".into(),
        authenticated_by: "token".into(),
        system: System::default(),
        interfaces: Vec::new(),
        result: told.then(|| Box::new(result)),
        clock: None,
        there: None,
        back: None,
        lost: None,
    }
}

#[test]
fn losses_are_where_the_two_ends_counts_differ() {
    let split = |lost, far: &FarEnd| {
        let mut ledger = Ledger::default();
        lose(&mut ledger, lost, far);
        let named = ledger.losses.iter().map(|loss| (loss.name.to_string(), loss.count));
        assert_eq!(ledger.lost(), lost);
        named.filter(|(_, count)| *count != 0).collect::<Vec<_>>()
    };
    let name = |name: &str, count| (name.to_owned(), count);
    assert_eq!(split(5, &far(&[], false)), [name("no answer", 5)]);
    let both = far(
        &[("above the rate that the server allows", 2), ("on the way there", 3)],
        true,
    );
    assert_eq!(
        split(9, &both),
        [
            name("above the rate that the server allows", 2),
            name("on the way there", 3),
            name("on the way back", 4)
        ]
    );
    // An answer that came too late to count was not lost on the way: never more than were missed.
    assert_eq!(split(1, &both), [name("above the rate that the server allows", 1)]);
    assert_eq!(split(0, &both), []);
}
