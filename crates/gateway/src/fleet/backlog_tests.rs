use super::*;

#[test]
fn answers_do_not_wait_for_a_disk_that_hangs() {
    let backlog = Backlog::default();
    assert_eq!((backlog.patience(), backlog.problem()), (HANGS, None));
    assert!(backlog.put(1));
    std::thread::sleep(HANGS + Duration::from_millis(1));
    assert_eq!(backlog.patience(), Duration::ZERO);
    assert!(backlog.problem().unwrap().contains("has not answered for 2 s"));
    backlog.written(1);
    assert_eq!((backlog.patience(), backlog.problem()), (HANGS, None));
}

#[test]
fn a_start_waits_for_what_was_put_but_not_for_a_disk_that_hangs() {
    let backlog = Backlog::default();
    let took = || {
        let began = Instant::now();
        backlog.wait_until_written();
        began.elapsed()
    };
    assert!(backlog.put(2));
    assert!(took() >= HANGS);
    let began = Instant::now();
    backlog.taken(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(HANGS / 8);
            backlog.written(1);
        });
        backlog.wait_until_written();
        assert!(began.elapsed() >= HANGS / 8);
    });
    assert_eq!(backlog.counts(), (0, 0));
    // Nothing more comes of one that was given up.
    assert!(backlog.put(1));
    backlog.give_up();
    assert!(took() < HANGS);
}

/// Nobody waits for a disk that is slow: what is too much is given up, said, counted, and asked for when the disk has answered.
#[test]
fn too_much_is_given_up_and_wanted_again() {
    let backlog = Backlog::with_room(100);
    assert!(backlog.put(100));
    assert!(backlog.put(50), "one more batch");
    assert!(!backlog.is_given_up() && !backlog.begin_anew());
    assert!(!backlog.put(1));
    assert!(backlog.is_given_up());
    assert_eq!((backlog.counts(), backlog.patience()), ((1, 150), Duration::ZERO));
    let problem = backlog.problem().unwrap();
    assert!(
        problem.contains("given up") && problem.contains("too slow"),
        "{problem}"
    );
    // It is slow, and goes on.
    backlog.written(150);
    assert!(!backlog.put(1), "something is missing");
    assert!(!backlog.begin_anew(), "nobody has said that it can be written");
    backlog.want_all();
    assert!(!backlog.put(1));
    assert_eq!(backlog.has_room(), None);
    assert!(backlog.begin_anew() && !backlog.begin_anew());
    assert_eq!(backlog.has_room(), Some(true));
    assert!(backlog.put(26));
    assert_eq!(backlog.has_room(), Some(false), "what changes has room");
    assert!(backlog.problem().unwrap().contains("is being made anew"));
    assert_eq!(backlog.patience(), Duration::ZERO);
    backlog.is_whole();
    backlog.written(26);
    assert_eq!((backlog.problem(), backlog.patience()), (None, HANGS));
    assert_eq!(backlog.counts(), (1, 0));
}

#[test]
fn a_disk_that_fails_answers() {
    let backlog = Backlog::with_room(100);
    assert!(backlog.put(7));
    backlog.failed("it is full".to_owned());
    assert!(!backlog.is_given_up() && backlog.patience() > HANGS / 2);
    let problem = backlog.problem().unwrap();
    assert!(problem.contains("when it can be written: it is full"), "{problem}");
    assert!(backlog.put(100));
    backlog.failed("it is full".to_owned());
    assert!(backlog.is_given_up(), "too much waits");
    let problem = backlog.problem().unwrap();
    assert!(
        problem.contains("given up") && problem.contains("it is full"),
        "{problem}"
    );
}

/// While it is made anew too much may wait again.
#[test]
fn it_is_given_up_once_more() {
    let backlog = Backlog::with_room(100);
    let room = |is_there| assert_eq!(backlog.put(101), is_there);
    room(true);
    room(false);
    backlog.taken(101);
    backlog.want_all();
    assert!(backlog.begin_anew());
    room(true);
    room(false);
    assert_eq!((backlog.has_room(), backlog.counts()), (None, (2, 101)));
    backlog.is_whole();
    assert!(backlog.is_given_up(), "what comes to an end is not all");
}

#[test]
fn the_end_says_what_was_not_written() {
    let backlog = Backlog::default();
    assert!(backlog.put(2000));
    backlog.end();
    let why = backlog.wait_for_end().unwrap_err();
    assert!(why.contains("2 KiB were not written"), "{why}");
    backlog.written(2000);
    assert_eq!(backlog.wait_for_end(), Ok(()));
}
