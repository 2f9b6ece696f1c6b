use std::ops::Range;

use anyhow::anyhow;
use ringside_measure::delay::Stamps;

use super::*;

/// NAPI on CPU 0, the application on CPU 1.
pub(in super::super) fn cell() -> Cell {
    Cell {
        wait: Wait::Spin,
        core: Core::Other,
        c_states: CStates::AsIs,
    }
}

pub(in super::super) fn series(cell: Cell) -> Series {
    let place = Ok(Place {
        napi: 0,
        application: 1,
    });
    Series::new(Planned { cell, place })
}

/// A turn with a packet of each of these delays, in nanoseconds.
pub(in super::super) fn reading(delays: Range<u64>, steal: f64) -> Reading {
    let packets = delays.end - delays.start;
    let mut taken = Delays::new(Core::Other, 0);
    for delay in delays {
        taken.record(stamps(delay, 1));
    }
    let mut cpu = CpuTime::default();
    (cpu.user, cpu.system, cpu.idle) = (50, 25, 25);
    Reading {
        delays: taken,
        sent: Some(packets),
        lost: 0,
        cpu,
        steal,
        thread: ThreadTime {
            elapsed_ns: 1_000_000,
            running_ns: 750_000,
            waiting_ns: 20_000,
        },
        idle: Vec::new(),
        busy_polling: BusyPolling::Off,
        unprivileged: None,
    }
}

fn stamps(delay: u64, dequeued_cpu: u32) -> Stamps {
    Stamps {
        xdp_ns: 1_000_000,
        xdp_cpu: 0,
        dequeued_ns: 1_000_000 + delay,
        dequeued_cpu,
    }
}

#[test]
fn turns_add_up() {
    let mut series = series(cell());
    series.add(Ok(reading(100..200, 0.0)));
    series.add(Ok(reading(300..500, 0.039)));
    let cell = series.cell();
    let delay = cell.delay.expect("samples");
    assert_eq!((delay.samples, delay.min_ns, delay.max_ns), (300, 100, 499));
    assert_eq!(
        (cell.sent_packets, cell.received_packets, cell.lost_packets),
        (Some(300), 300, 0)
    );
    assert_eq!(
        (cell.napi_cpu, cell.application_cpu, cell.unavailable),
        (Some(0), Some(1), None)
    );
    let cpu = cell.cpu.expect("ticks");
    assert_eq!((cpu.cpu, cpu.user_percent, cpu.system_percent), (1, 50.0, 25.0));
    assert_eq!((cell.thread_percent, cell.waiting_percent), (Some(75.0), Some(2.0)));
    assert_eq!(cell.measured_ns, 2_000_000);
    let medians: Vec<_> = cell.turns.iter().map(|turn| turn.p50_ns).collect();
    assert_eq!(medians, [Some(149), Some(399)]);
    assert_eq!(series.disturbance(), Some(2.0));
}

#[test]
fn a_turn_that_was_stolen_is_left_out_but_not_what_its_clocks_did() {
    let mut series = series(cell());
    let mut stolen = reading(100..200, 0.05);
    stolen.delays.record(Stamps {
        dequeued_ns: 0,
        ..stamps(0, 1)
    });
    series.add(Ok(stolen));
    assert_eq!(series.samples(), 0);
    assert!(series.has_left_out() && !series.is_given_up());
    assert_eq!((series.impossible(), series.cell().impossible_packets), (1, 1));
    series.add(Ok(reading(100..200, 0.0)));
    series.end();
    assert_eq!(series.unavailable(), None);
    let cell = series.cell();
    assert_eq!(
        (cell.sent_packets, cell.delay.expect("samples").samples),
        (Some(100), 100)
    );
    assert_eq!(cell.turns.iter().filter(|turn| turn.left_out).count(), 1);
}

#[test]
fn turns_that_were_all_stolen_count() {
    let mut series = series(cell());
    for _ in 0..2 {
        let mut stolen = reading(100..200, 0.05);
        stolen.delays.record(Stamps {
            dequeued_ns: 0,
            ..stamps(0, 1)
        });
        series.add(Ok(stolen));
    }
    series.end();
    let cell = series.cell();
    assert_eq!(cell.unavailable, None);
    assert_eq!(cell.delay.expect("samples").samples, 200);
    assert_eq!((cell.sent_packets, cell.impossible_packets), (Some(200), 2));
    assert!(cell.turns.iter().all(|turn| !turn.left_out && turn.steal_percent > 4.0));
}

#[test]
fn why_there_is_nothing_is_told() {
    let elsewhere = |cell: Cell, busy_polling| {
        let mut series = series(cell);
        let mut reading = reading(0..0, 0.0);
        reading.delays = Delays::new(cell.core, 0);
        let cpu = match cell.core {
            Core::Same => 1,
            Core::Other => 0,
        };
        reading.delays.record(stamps(10, cpu));
        reading.busy_polling = busy_polling;
        series.add(Ok(reading));
        series.unavailable().expect("no samples")
    };
    let driving = BusyPolling::Driving { polls: 2, fruitful: 1 };
    let same = Cell {
        core: Core::Same,
        ..cell()
    };
    let busy = Cell {
        wait: Wait::BusyPoll,
        ..cell()
    };
    assert_eq!(
        elsewhere(cell(), BusyPolling::Off),
        "NAPI always ran on the application's CPU"
    );
    assert_eq!(
        elsewhere(same, BusyPolling::Off),
        "NAPI never ran on the application's CPU"
    );
    assert!(elsewhere(busy, driving).contains("busy-polling runs NAPI on the application's CPU"));

    let mut none = series(cell());
    assert_eq!(none.unavailable().as_deref(), Some("it had no turn"));
    none.add(Ok(reading(0..0, 0.0)));
    assert_eq!(none.unavailable().as_deref(), Some("no packet came"));

    let mut warming = series(cell());
    let mut few = reading(0..0, 0.0);
    few.delays = Delays::new(Core::Other, 5);
    few.delays.record(stamps(10, 1));
    warming.add(Ok(few));
    assert!(
        warming
            .unavailable()
            .expect("no samples")
            .contains("than the warm-up takes")
    );

    let mut failing = series(cell());
    failing.add(Err(anyhow!("first").context("second")));
    assert!(!failing.is_given_up());
    failing.add(Err(anyhow!("first").context("second")));
    assert!(failing.is_given_up());
    assert_eq!(failing.unavailable().as_deref(), Some("second: first"));

    let planned = Planned {
        cell: cell(),
        place: Err("no other CPU".into()),
    };
    let nowhere = Series::new(planned);
    assert!(nowhere.is_given_up());
    let cell = nowhere.cell();
    assert_eq!(
        (cell.unavailable.as_deref(), cell.application_cpu),
        (Some("no other CPU"), None)
    );
    assert_eq!((cell.cpu, cell.thread_percent), (None, None));
}

#[test]
fn busy_polling_is_told_of_its_own_cells_alone() {
    for (wait, state, drives) in [
        (Wait::BusyPoll, BusyPolling::NoNapi, Some(false)),
        (Wait::BusyPoll, BusyPolling::Idle { polls: 5_000 }, Some(false)),
        (
            Wait::BusyPoll,
            BusyPolling::Driving { polls: 2, fruitful: 1 },
            Some(true),
        ),
        (Wait::BusyPoll, BusyPolling::Waiting, None),
        (Wait::Spin, BusyPolling::NoNapi, None),
    ] {
        let mut series = series(Cell { wait, ..cell() });
        let mut reading = reading(100..200, 0.0);
        reading.busy_polling = state;
        series.add(Ok(reading));
        assert_eq!(series.cell().busy_polling_drives, drives, "{wait:?} {state}");
        assert_eq!(
            series.busy_warning().is_some(),
            drives == Some(false),
            "{wait:?} {state}"
        );
    }
}
