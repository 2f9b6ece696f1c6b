use super::super::example::{looks, receiver};
use super::*;

fn close(rate: Option<f64>, expected: f64) -> bool {
    rate.is_some_and(|rate| (rate - expected).abs() < 1e-6 * expected.max(1.0))
}

#[test]
fn rates_are_differences_over_the_time_between() {
    let [first, second] = looks();
    let view = View::of(&first, &first, &second);
    assert_eq!((view.interval_ns, view.processes_elsewhere), (1_000_000_000, 1));

    // By the process's own clock, by which two seconds have passed.
    let queue = &view.processes[0].queues[0];
    assert!(
        close(queue.received_pps, 1e6) && close(queue.received_bytes_per_s, 64e6),
        "{queue:?}"
    );
    assert!(
        close(queue.wakeups_per_s, 4.5) && close(queue.waits_per_s, 5.0),
        "{queue:?}"
    );
    assert_eq!(
        (queue.received_packets, queue.frames.unwrap().total()),
        (2_001_000, 512)
    );
    assert!(
        close(queue.drops[0].packets_per_s, 10.0) && queue.drops[0].packets == 20,
        "{queue:?}"
    );
    assert!(close(queue.fill_ring_empty_per_s, 10.0));

    let interface = &view.interfaces[0];
    assert!(
        close(interface.received_pps, 1e6) && close(interface.sent_pps, 0.0),
        "{interface:?}"
    );
    let missed = interface
        .drops
        .iter()
        .find(|drops| drops.reason == "link rx_missed")
        .unwrap();
    assert!(close(missed.packets_per_s, 50.0) && missed.packets == 50, "{missed:?}");
    let aborted = interface
        .drops
        .iter()
        .find(|drops| drops.reason.contains("XDP_ABORTED"))
        .unwrap();
    assert!(close(aborted.packets_per_s, 4.0));
    assert_eq!(interface.queues[0].counters["drops"].per_s, Some(0.0));
    assert!(close(interface.queues[0].counters["packets"].per_s, 1000.0));
    assert_eq!(interface.interrupts[0].per_s_by_cpu, [(0, 500.0), (1, 0.0)]);

    let cpu = &view.cpus[0];
    assert!((cpu.user_percent, cpu.softirq_percent) == (60.0, 25.0), "{cpu:?}");
    assert!(
        close(cpu.net_rx_per_s, 20_000.0) && close(cpu.net_tx_per_s, 0.0),
        "{cpu:?}"
    );
    assert!(
        close(cpu.interrupts_per_s, 500.0),
        "the CPU's own timer is no device: {cpu:?}"
    );
}

#[test]
fn times_are_those_of_the_interval_and_all() {
    let [first, second] = looks();
    let times = View::of(&first, &first, &second).processes[1].latency.take_times();
    let (interval, whole) = (times.interval.unwrap(), times.whole.unwrap());
    assert_eq!((interval.samples, whole.samples), (100, 1_100));
    assert!(
        interval.max_ns < 10_200 && whole.max_ns == 50_000,
        "{interval:?} {whole:?}"
    );
    assert_eq!(interval.p99_ns, None, "too few");
}

trait TakeTimes {
    fn take_times(&self) -> Times;
}

impl TakeTimes for Option<Times> {
    fn take_times(&self) -> Times {
        let times = self.as_ref().expect("it measures them");
        Times {
            interval: times.interval,
            whole: times.whole,
        }
    }
}

/// The first look has nothing to compare with; another process of the same number, and an interface that was made anew, have
/// not counted backwards.
#[test]
fn what_cannot_be_compared_has_no_rate() {
    let [first, mut second] = looks();
    let alone = View::of(&first, &first, &first);
    assert_eq!((alone.interval_ns, alone.interfaces[0].received_pps), (0, None));
    assert_eq!(alone.processes[0].queues[0].received_pps, None);

    second.processes[0].started_unix_s += 1;
    second.interfaces[0].index += 1;
    let view = View::of(&first, &first, &second);
    assert_eq!(view.processes[0].queues[0].received_pps, None);
    assert_eq!(view.interfaces[0].received_pps, None);
    assert_eq!(view.interfaces[0].queues[0].counters["packets"].per_s, None);

    // A driver that began to count anew.
    let [mut first, second] = looks();
    first.interfaces[0].stats.rx_packets = 1 << 40;
    assert_eq!(View::of(&first, &first, &second).interfaces[0].received_pps, Some(0.0));
}

#[test]
fn losses_are_counted_since_the_base() {
    let [first, second] = looks();
    let of = |base: &Observation| {
        let view = View::of(base, &first, &second);
        (
            view.processes[0].queues[0].drops[0].packets,
            view.interfaces[0].drops[1].packets,
        )
    };
    assert_eq!(of(&first), (20, 50));
    assert_eq!(of(&second), (0, 0));
    // What began after it has lost all that it has lost.
    let mut before = first.clone();
    before.processes.clear();
    assert_eq!(
        of(&before),
        (receiver(1).queues[0].counters.xdp_statistics.unwrap().rx_dropped, 50)
    );
}

/// What programs build on.
#[test]
fn the_names_of_the_fields() {
    let [first, second] = looks();
    let mut json = serde_json::to_value(View::of(&first, &first, &second)).unwrap();
    json.sort_all_objects();
    assert_eq!(json["schema"], "ringside.top/1");
    let names = |json: &serde_json::Value| Vec::from_iter(json.as_object().unwrap().keys().cloned()).join(" ");
    assert_eq!(
        names(&json),
        "af_xdp_processes cpus interfaces interval_ns notes processes processes_elsewhere schema tool_version"
    );
    assert_eq!(
        names(&json["processes"][0]["queues"][0]),
        "age_ns drops fill_ring_empty_per_s frames interface kicks_per_s mode queue received_bytes_per_s received_packets \
         received_pps rings sent_bytes_per_s sent_packets sent_pps waits_per_s wakeups_per_s"
    );
    assert_eq!(
        names(&json["interfaces"][0]),
        "driver drops interrupts mtu_bytes name queues received_bytes_per_s received_pps sent_bytes_per_s sent_pps state \
         xdp_program"
    );
    assert_eq!(
        names(&json["interfaces"][0]["queues"][0]),
        "af_xdp_socket counters holder kind napi queue"
    );
    assert_eq!(json["processes"][0]["queues"][0]["mode"], "native_copy");
}
