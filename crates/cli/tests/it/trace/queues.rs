//! Which packet a reader takes, where it is awake.

use super::*;

/// A reader that asks again and again takes most packets before their socket has told of them.
#[test]
fn a_reader_that_never_sleeps_has_each_packet_at_once() {
    if !is_root() || !has_cpus(2) {
        return;
    }
    let _alone = alone();
    let Lab { a, b, .. } = &lab("traceawake", 1);
    let (sender, receiver) = (socket(a, 0), socket(b, 7000));
    sender.connect((b.ipv4, 7000)).expect("connected");
    receiver.set_nonblocking(true).expect("set");
    let take = || {
        pin(1);
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            _ = receiver.recv(&mut [0; 128]);
        }
    };
    let every = Duration::from_millis(10);
    measured(|| {
        let traced = while_probes_flow(45, &sender, every, take, || listen(45, 2.4));
        let path = only(&traced)?;
        assert_eq!(path.end, Some(Point::Copy), "{path:#?}");
        // Counted wrongly by one it would be the time from one packet to the next.
        expect(
            path.stages.iter().all(|stage| median_ms(stage) < 5.0),
            format_args!("{path:#?}"),
        )?;
        // What lies in the socket at the end is: without its CPU the reader takes nothing.
        let is_incomplete = path.incomplete_packets * 10 > path.traced_packets;
        expect(!is_incomplete, format_args!("{path:#?}"))
    });
}
