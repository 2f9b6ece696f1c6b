use super::*;

#[test]
fn messages_come_out_as_they_went_in() {
    let mut wire = Vec::new();
    let run = Request::Run {
        program: "/bin/true".into(),
        arguments: vec!["ä b".into()],
        environment: vec![("A".into(), "b=c".into())],
        directory: None,
    };
    write(&mut wire, 7, &run, b"").unwrap();
    write(&mut wire, 8, Request::PowerOff, &[0, 255, 10]).unwrap();
    let mut from = &wire[..];
    let (first, body) = read::<Request>(&mut from).unwrap().unwrap();
    assert_eq!((first.id, first.message, body), (7, run, Vec::new()));
    let (second, body) = read::<Request>(&mut from).unwrap().unwrap();
    assert_eq!(
        (second.id, second.message, body),
        (8, Request::PowerOff, vec![0, 255, 10])
    );
    assert!(read::<Request>(&mut from).unwrap().is_none());
}

#[test]
fn what_is_cut_off_or_no_message_is_an_error() {
    let mut wire = Vec::new();
    write(&mut wire, 1, Answer::Done, b"body").unwrap();
    for end in 1..wire.len() {
        assert!(read::<Answer>(&mut &wire[..end]).is_err(), "cut at {end}");
    }
    // Garbage asks for no memory.
    assert!(read::<Answer>(&mut &[0xff; 64][..]).is_err());
    assert!(read::<Request>(&mut &wire[..]).is_err(), "an answer is no request");
    assert!(write(&mut Vec::new(), 1, Answer::Piece, &vec![0; LONGEST + 1]).is_err());
}
