use super::*;

#[test]
fn the_start_time_is_field_22_whatever_the_name() {
    let stat = |name: &str, state: &str| {
        let rest: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        format!("7 ({name}) {state} {}", rest.join(" "))
    };
    for name in ["plain", "a b", ") R 1 2", "((x)"] {
        assert_eq!(parse_start_time(&stat(name, "S")), Some(22), "{name}");
        assert_eq!(parse_start_time(&stat(name, "Z")), None, "{name}");
    }
    assert_eq!(parse_start_time(""), None);
    assert_eq!(parse_start_time("7 (short) S 1 2"), None);
}

#[test]
fn the_last_cpu_is_field_39() {
    let rest: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
    assert_eq!(parse_stat(&format!("7 (a b) R {}", rest.join(" "))), Some((22, 39)));
}

/// The thread itself, and not its process: another one of it runs all the time.
#[test]
fn a_thread_is_told_with_its_time_and_its_cpu() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(move || {
            let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            crate::cpus::pin_thread(own, &[0]).unwrap();
            let (before, _) = ran(own).unwrap();
            let begin = std::time::Instant::now();
            while ran(own).unwrap().0 < before + 2_000_000 {}
            tell.send((ran(own).unwrap(), before, begin.elapsed())).unwrap();
        });
        let told = told.recv();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let ((after, cpu), before, passed) = told.unwrap();
        assert_eq!(cpu, 0);
        assert!(
            u128::from(after - before) <= passed.as_nanos() + 10_000_000,
            "{before} {after} {passed:?}"
        );
    });
    assert_eq!(ran(u32::MAX), None);
}

#[test]
fn own_and_ended_processes_are_told_apart() {
    let own = std::process::id();
    assert!(start_time(own).is_some_and(|start| start > 0));
    assert!(command(own).is_some_and(|name| !name.is_empty()));
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    assert_eq!(start_time(child.id()), None);
    assert_eq!(start_time(u32::MAX), None);
}

#[test]
fn who_is_stopped_is_told_from_who_waits() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    let pid = child.id();
    let number = rustix::process::Pid::from_child(&child);
    let is = |wanted: bool| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while is_stopped(pid) != wanted && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        is_stopped(pid) == wanted
    };
    let before = is_stopped(pid);
    rustix::process::kill_process(number, rustix::process::Signal::STOP).expect("signalled");
    let stopped = is(true);
    rustix::process::kill_process(number, rustix::process::Signal::CONT).expect("signalled");
    let goes_on = is(false);
    child.kill().expect("killed");
    child.wait().expect("gone");
    assert_eq!((before, stopped, goes_on, is_stopped(pid)), (false, true, true, false));
}
