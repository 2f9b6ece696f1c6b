use super::*;

#[test]
fn only_what_has_run_since_the_last_look_is_seen_on_a_cpu() {
    let mut seen = Seen::new(Pinned {
        id: u32::MAX,
        name: "CPU 0/TCG".into(),
        cpus: vec![1],
    });
    assert_eq!(seen.before_ns, None, "nobody has that number");
    // The first look only begins: how long it had run before is nobody's business.
    seen.look(Some((500, 0)));
    seen.look(Some((500, 0)));
    seen.look(Some((700, 1)));
    seen.look(None);
    seen.look(Some((900, 1)));
    assert_eq!(
        (seen.told.ran_ns, seen.told.seen),
        (400, vec![SteerCount { cpu: 1, count: 2 }])
    );
}

#[test]
fn a_thread_that_runs_is_seen_and_looking_ends() {
    assert!(Runs::begin(Vec::new()).is_none());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let (tell, number) = mpsc::channel();
        let stop = &stop;
        scope.spawn(move || {
            let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            crate::pin::to_cpu(0).unwrap();
            tell.send(own).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let runs = number.recv().map(|id| {
            let pinned = Pinned {
                id,
                name: "spinner".into(),
                cpus: vec![0],
            };
            let runs = Runs::begin(vec![pinned]).expect("one to be looked at");
            let begin = process::ran(id).expect("it lives").0;
            let over = std::time::Instant::now() + Duration::from_secs(10);
            while process::ran(id).is_some_and(|(ns, _)| ns < begin + 60_000_000) && std::time::Instant::now() < over {
                thread::sleep(Duration::from_millis(5));
            }
            runs.end()
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        runs.unwrap()
    });
    let [one] = told.as_slice() else { panic!("{told:?}") };
    assert!(one.ran_ns > 0, "{one:?}");
    assert!(
        one.seen.iter().all(|seen| seen.cpu == 0) && !one.seen.is_empty(),
        "{one:?}"
    );
}
