use super::*;

const STAT: &str = "\
cpu  30 0 20 100 0 0 4 2 9 0
cpu0 10 1 20 30 2 3 4 5 6 7
cpu2 20 0 0 70 0 0 0 0 0 0
intr 1 2 3
cpufreq nonsense
";

#[test]
fn each_cpu_is_read_and_the_sum_line_is_not() {
    let times = CpuTimes::parse(STAT);
    assert_eq!(times.cpus.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>(), [0, 2]);
    let zero = times.cpu(0).unwrap();
    let expected = CpuTime {
        user: 10,
        nice: 1,
        system: 20,
        idle: 30,
        iowait: 2,
        irq: 3,
        softirq: 4,
        steal: 5,
    };
    assert_eq!(zero, expected);
    assert_eq!((zero.total(), zero.busy()), (75, 38));
    assert_eq!(times.sum().user, 30);
    assert_eq!(times.cpu(1), None);
}

#[test]
fn differences_are_per_cpu_and_never_negative() {
    let earlier = CpuTimes::parse(STAT);
    let later = CpuTimes::parse("cpu0 15 1 20 29 2 3 9 5 6 7\ncpu1 1 1 1 1 1 1 1 1 0 0\n");
    let passed = later.since(&earlier);
    assert_eq!(
        passed.cpus.len(),
        1,
        "CPU 1 was not there before, CPU 2 is not any more"
    );
    let zero = passed.cpu(0).unwrap();
    assert_eq!((zero.user, zero.idle, zero.softirq, zero.total()), (5, 0, 5, 10));
    assert_eq!(zero.fraction(zero.softirq), Some(0.5));
    assert_eq!(CpuTime::default().fraction(0), None);
}

#[test]
fn time_passes_here() {
    let first = CpuTimes::read().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_millis(200);
    while std::time::Instant::now() < end {
        std::hint::spin_loop();
    }
    let passed = CpuTimes::read().unwrap().since(&first).sum();
    let ticks = CpuTimes::ticks_per_second() / 10;
    assert!(passed.total() >= ticks && passed.busy() > 0, "{passed:?}");
}
