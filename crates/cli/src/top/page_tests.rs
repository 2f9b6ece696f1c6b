use super::super::example::looks;
use super::super::observation::Observation;
use super::*;

#[test]
fn all_of_it_as_text() {
    let [first, second] = looks();
    let text = text(&View::of(&first, &first, &second));
    let heads = [
        "rx 4711 up 62.0 s",
        "ping 4712 up 62.0 s",
        "eth0 (igc) up",
        "CPU  ",
        "something could not",
    ];
    let at = heads.map(|head| text.find(head).unwrap_or_else(|| panic!("no {head:?} in {text}")));
    assert!(at.is_sorted(), "{text}");
    assert!(
        text.lines()
            .all(|line| line == line.trim_end() && line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn tables_fit_80_columns_whatever_is_in_them() {
    let [first, mut second] = looks();
    let queue = &mut second.processes[0].queues[0];
    queue.counters.received_packets = 1 << 40;
    queue.received_bytes = 1 << 44;
    let frames = queue.frames.as_mut().unwrap();
    (frames.fill, frames.rx) = (65_536, 65_536);
    second.processes[0].command_line = vec!["x".into(); 90];
    let view = View::of(&first, &first, &second);
    for subject in subjects(&view) {
        for line in lines(&view, subject, 80) {
            assert!(line.width() <= 80, "{line}");
        }
    }
}

/// A letter for each place that has some, and no more letters than there are columns.
#[test]
fn the_bar_of_frames() {
    let [first, second] = looks();
    let mut view = View::of(&first, &first, &second);
    let queue = &mut view.processes[0].queues[0];
    let mut bar = |fill, rx, free| {
        let of = queue.frames.as_mut().unwrap();
        (of.fill, of.rx, of.free) = (fill, rx, free);
        (of.user, of.tx, of.completion) = (0, 0, 0);
        let text = frames(queue);
        text[3..text.find(']').unwrap()].to_owned()
    };
    assert_eq!(bar(0, 0, 512), "..............");
    assert_eq!(bar(256, 0, 256), "FFFFFFF.......");
    assert_eq!(bar(512, 0, 0), "FFFFFFFFFFFFFF");
    assert_eq!(bar(1, 0, 511), "F.............");
    assert_eq!(bar(0, 512, 0), "RRRRRRRRRRRRRR");
    assert_eq!(bar(0, 0, 0), "..............");
}

#[test]
fn without_anybody_it_says_what_to_do() {
    let empty = Observation::default();
    let text = text(&View::of(&empty, &empty, &empty));
    assert!(
        text.starts_with("No ringside command runs here that tells of itself in "),
        "{text}"
    );
}
