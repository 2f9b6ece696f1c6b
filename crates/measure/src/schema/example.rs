//! A small document with every kind of record in it, for the tests.

use super::{
    BestResult, CState, ChecksumBy, ClockRead, ConfigurationResult, CostTurns, CpuUse, CycleResult, DelayCell,
    DelayResult, DelayTurn, Document, FlightRecord, IdleUse, Interface, Interval, KnobResult, LatencyResult, LaunchBy,
    LaunchResult, LevelResult, LinkChange, LinkEvent, MeasuredWhole, MissingHook, Mitigation, Mode, Operation, Outcome,
    QueueCounters, QueueMode, RecordedEvent, RecordedPoint, RunResult, SchemaName, SeriesEstimate, SlowResult,
    SlowStage, StageResult, SteerClass, SteerCount, SteerCpu, SteerFlow, SteerLanding, SteerQueue, SteerResult,
    SteerRule, SteerSetting, SteerThread, SteerTo, SweepResult, System, TraceCost, TraceResult, TracedPath,
    TxStampsResult, UnavailableLevel, UntilCi, XdpStatistics, XdpVerdicts,
};
use crate::compare::STEAL_LIMIT;
use crate::counters::{Ledger, LossCause};
use crate::cycle::{Cycle, Waiting};
use crate::delay::{CStates, Core, Delays, Stamps, Wait};
use crate::latency::{Latency, RttRecorder};
use crate::pace::Lateness;
use crate::probe::Clock;
use crate::rate::Rates;
use crate::sequence::Counts;
use crate::sweep::{Method, Verdict};
use crate::validity::{Invalid, Reason, Validity};

/// A ping of 25 packets on a made-up machine.
pub(crate) fn example() -> Document {
    let mut recorder = RttRecorder::new();
    for i in 0..24 {
        recorder.record(i * 1_000_000, i * 1_000_000 + 50, i * 1_000_000 + 6_050);
    }
    let mut lateness = Lateness::new(1_000_000);
    lateness.record(0, 2_000_000, 1);
    lateness.record(1_000_000, 1_000_050, 24);
    let mut cycle = Cycle::new(1_000_000, 1_000_000, Waiting::Adaptive).expect("a period");
    for _ in 0..25 {
        let (deadline, asked) = (cycle.deadline_ns(), cycle.wake_ns().expect("it sleeps"));
        cycle.woke(asked, asked + 48_000);
        cycle.ready(deadline);
        cycle.sent(deadline + 1_500);
    }
    let mut packets = Ledger {
        generated: 25,
        sent: 25,
        received: Some(24),
        ..Ledger::default()
    };
    packets.lose(LossCause::RxRingFull, 1);
    let run = RunResult {
        operation: Operation::Ping,
        duration_ns: 25_000_000,
        frame_bytes: Some(82),
        payload_bytes: Some(40),
        target_pps: Some(1_000.0),
        depth_packets: None,
        unaccounted_packets: 0,
        packets,
        received: Rates::new(24, 82, 40, 24_000_000),
        transmitted: Rates::new(25, 82, 40, 25_000_000),
        sequence: Some(Counts {
            sent: 25,
            received: 24,
            lost: 1,
            ..Counts::default()
        }),
        latency: Some(LatencyResult::round_trip(&recorder, Clock::Monotonic)),
        sender_lateness: lateness.result(),
        cycle: Some(CycleResult {
            launch: Some(LaunchResult {
                lead_ns: 200_000,
                kept_by: LaunchBy::Unknown,
                missed_packets: None,
            }),
            ..CycleResult::of(&cycle, Clock::Tai)
        }),
        tx_stamps: Some(
            TxStampsResult {
                clock: Clock::Tai,
                source: "software".into(),
                sampled_one_in_packets: 1,
                wanted_packets: 25,
                asked_packets: 25,
                stamped_packets: 24,
                unstamped_packets: 0,
                outstanding_packets: 1,
                unread_packets: 0,
                impossible_packets: 0,
                coverage_percent: Some(96.0),
                hand_over: None,
                hand_over_hdr: None,
                uncertainty_ns: None,
            }
            .with_times(recorder.raw()),
        ),
        checksum_offload: Some(ChecksumBy::DeviceOrKernel),
        queues: vec![QueueCounters {
            interface: "veth0".into(),
            queue: 0,
            received_packets: 24,
            sent_packets: 25,
            kicks: 25,
            waits: 0,
            rx_starved: 0,
            xdp_statistics: Some(XdpStatistics {
                rx_ring_full: 1,
                ..XdpStatistics::default()
            }),
            xdp_verdicts: Some(XdpVerdicts {
                redirected_packets: 25,
                ..XdpVerdicts::default()
            }),
        }],
        cpus: vec![CpuUse {
            cpu: 1,
            user_percent: 80.0,
            system_percent: 15.0,
            softirq_percent: 5.0,
            steal_percent: 0.0,
        }],
        intervals: vec![Interval {
            start_ns: 0,
            duration_ns: 25_000_000,
            received_packets: 24,
            sent_packets: 25,
            p50_ns: Some(6_000),
        }],
        link_events: Some(vec![
            LinkChange {
                at_ns: 3_000_000,
                interface: "veth0".into(),
                event: LinkEvent::NoCarrier,
            },
            LinkChange {
                at_ns: 5_000_000,
                interface: "veth0".into(),
                event: LinkEvent::Up,
            },
        ]),
        link_flaps: Some(1),
        link_down_ns: Some(2_000_000),
        xdp_faults: None,
        cpu_stages: None,
        hints: None,
        under_load: None,
        impair: None,
        schedule: None,
        until_ci: Some(UntilCi {
            estimate: Some(SeriesEstimate {
                median: 6_000.0,
                low: 5_990.0,
                high: 6_020.0,
                correlation: 0.25,
                pieces: 13,
            }),
            ..UntilCi::of(0.01, true, "p50_ns", Some(0.005))
        }),
    };
    Document {
        schema: SchemaName,
        tool_version: "0.1.0".into(),
        started_unix_s: 1_700_000_000,
        command_line: ["ringside", "ping", "veth0"].map(String::from).to_vec(),
        system: System {
            kernel_release: "6.18.44".into(),
            kernel_version: "#1 SMP PREEMPT_DYNAMIC".into(),
            preemption: Some("PREEMPT_DYNAMIC (full)".into()),
            architecture: "x86_64".into(),
            kernel_command_line: "quiet".into(),
            machine_model: None,
            hypervisor: Some("kvm".into()),
            cpu_model: "Example CPU".into(),
            cpus_online: 2,
            memory_bytes: 8 << 30,
            cpu_governor: None,
            c_states: vec![CState {
                name: "C1".into(),
                exit_latency_ns: 2_000,
                disabled: false,
            }],
            mitigations: vec![Mitigation {
                name: "spectre_v2".into(),
                status: "Mitigation: Retpolines".into(),
            }],
            clocksource: Some("tsc".into()),
        },
        interfaces: vec![Interface {
            name: "veth0".into(),
            driver: Some("veth".into()),
            firmware_version: None,
            mtu_bytes: 1500,
            link_speed_bps: None,
            rx_queues: 1,
            tx_queues: 1,
            offloads: [(String::from("tx-checksumming"), false)].into(),
            queues: vec![QueueMode {
                queue: 0,
                mode: Mode::NativeCopy,
                reason: Some("the driver has no zero-copy".into()),
                umem: Some(1),
                frames: Some(512),
                frame_size_bytes: Some(2048),
                multi_buffer: Some(false),
            }],
        }],
        result: Outcome::Run(Box::new(run)),
        far: None,
        validity: Some(Validity {
            valid: false,
            reasons: vec![Invalid {
                reason: Reason::Suspended,
                text: "the machine was suspended for 1.000 s".into(),
            }],
            steal_percent: Some(0.5),
            cpu_wait_percent: Some(0.25),
            suspended_ns: 1_000_000_000,
            clock_set_ns: 0,
        }),
    }
}

/// A cell of 20 samples.
pub(crate) fn delays() -> DelayResult {
    let mut delays = Delays::new(Core::Other, 2);
    for i in 0..22 {
        delays.record(Stamps {
            xdp_ns: i * 1_000_000,
            xdp_cpu: 0,
            dequeued_ns: i * 1_000_000 + 2_000 + i,
            dequeued_cpu: 1,
        });
    }
    let delay = delays.latency().summary();
    let cell = DelayCell {
        wait: Wait::BusyPoll,
        core: Core::Other,
        c_states: CStates::Off,
        napi_cpu: Some(0),
        application_cpu: Some(1),
        unavailable: None,
        busy_polling_drives: Some(false),
        delay,
        delay_hdr: delays.latency().to_hdr(),
        measured_ns: 22_000_000,
        sent_packets: Some(22),
        received_packets: delays.packets(),
        lost_packets: 0,
        warm_up_packets: delays.left_out().warm_up,
        elsewhere_packets: 0,
        impossible_packets: 0,
        without_hints_packets: 0,
        cpu: Some(CpuUse {
            cpu: 1,
            user_percent: 1.0,
            system_percent: 97.0,
            softirq_percent: 2.0,
            steal_percent: 0.0,
        }),
        thread_percent: Some(99.5),
        waiting_percent: Some(0.5),
        idle: vec![IdleUse {
            name: "C1".into(),
            entries: 3,
            time_ns: 40_000,
        }],
        failed_turns: 1,
        failure: Some("the link went away".into()),
        turns: vec![DelayTurn {
            samples: delays.latency().samples(),
            p50_ns: delay.and_then(|delay| delay.p50_ns),
            max_ns: delay.map(|delay| delay.max_ns),
            steal_percent: 0.0,
            left_out: false,
        }],
    };
    DelayResult {
        clock: Clock::Monotonic,
        clock_read: ClockRead {
            reads: 100_000,
            min_ns: 22.4,
            median_ns: 22.9,
        },
        interval_ns: Some(1_000_000),
        observed_interval_ns: None,
        rounds: 1,
        steal_limit_percent: STEAL_LIMIT * 100.0,
        cells: vec![cell],
        warnings: vec!["busy-polling did nothing".into()],
    }
}

/// A sweep over one knob that helps.
pub(crate) fn sweep() -> SweepResult {
    use std::collections::BTreeMap;

    use crate::compare::{Round, figure, ratio};

    let rounds = |value: f64| -> Vec<Round> {
        (0..8)
            .map(|number| Round {
                value: value + f64::from(number),
                steal: 0.0,
            })
            .collect()
    };
    let (base, better) = (rounds(1_000.0), rounds(1_200.0));
    let proportion = ratio(&base, &better).ok();
    let settings = |level: &str| BTreeMap::from([("batch".to_owned(), level.to_owned())]);
    let configuration = |level: &str, rounds: &[Round], ratio_to_base| ConfigurationResult {
        settings: settings(level),
        figure: figure(rounds).ok(),
        ratio_to_base,
        failure: None,
        failed_turns: 0,
        rounds: rounds.to_vec(),
    };
    SweepResult {
        objective: "rx-rate".into(),
        figure_of: "packets_pps".into(),
        more_is_better: true,
        operation: Operation::Rx,
        frame_bytes: 64,
        method: Method::Grid,
        rounds: 8,
        round_duration_ns: 200_000_000,
        steal_limit_percent: STEAL_LIMIT * 100.0,
        cpu_wait_percent: Some(0.5),
        margin_percent: 5.0,
        confidence_percent: 95.0,
        knobs: vec![KnobResult {
            name: "batch".into(),
            verdict: Verdict::Matters,
            levels: vec![
                LevelResult {
                    level: "256".into(),
                    ratio_to_base: proportion,
                    verdict: Some(Verdict::Matters),
                },
                LevelResult {
                    level: "64".into(),
                    ratio_to_base: None,
                    verdict: None,
                },
            ],
        }],
        unavailable: vec![UnavailableLevel {
            knob: "mode".into(),
            level: "zero-copy".into(),
            reason: "refused".into(),
        }],
        configurations: vec![
            configuration("256", &better, proportion),
            configuration("64", &base, None),
        ],
        best: BestResult {
            settings: settings("256"),
            is_base: false,
            figure: figure(&better).ok(),
            confirmation: proportion,
            not_confirmed: None,
            config: "batch = 256\n".into(),
        },
        interrupted: false,
        until_ci: None,
    }
}

/// A trace of one receiver, with everything in it.
pub(crate) fn trace() -> TraceResult {
    use crate::compare::{Round, figure, ratio};
    use crate::trace::{Culprit, DisturberKind, Point, Stage};

    let mut times = Latency::new();
    (0..40).for_each(|ns| times.record(1_000 + ns));
    let (summary, hdr) = (times.summary(), times.to_hdr());
    let rounds = |value: f64| [value, value + 1.0].map(|value| Round { value, steal: 0.0 });
    let (off, on) = (rounds(1_000.0), rounds(1_100.0));
    let cost = || -> Result<TraceCost, crate::Error> {
        Ok(TraceCost {
            off_ns: figure(&off)?,
            on_ns: figure(&on)?,
            ratio: ratio(&off, &on)?,
            off: CostTurns {
                turns: 2,
                packets: 20,
                events: 0,
            },
            on: CostTurns {
                turns: 2,
                packets: 20,
                events: 300,
            },
            always_on: Some("at far".into()),
        })
    };
    let path = TracedPath {
        receiver: Some("udp-blocking".into()),
        failure: Some("it failed".into()),
        sent_packets: Some(41),
        received_packets: Some(40),
        traced_packets: 40,
        incomplete_packets: 1,
        lost_events: 2,
        stages: vec![StageResult {
            hop: 0,
            stage: Stage::From(Point::Queue),
            name: "qdisc".into(),
            interface: Some("eth0".into()),
            times: summary,
            times_hdr: hdr.clone(),
            part_ns: 1_019.5,
            part_percent: 100.0,
            uncertainty_ns: None,
        }],
        whole: summary,
        whole_hdr: hdr,
        sum_mean_ns: 1_019.5,
        measured: Some(MeasuredWhole {
            packets: 40,
            mean_ns: 1_019.5,
            apart_mean_ns: 0.0,
            apart_max_ns: 30,
        }),
        end: Some(Point::Application),
        disordered_packets: 1,
        clock_error_ns: 30,
        cost: cost().ok(),
        slow: Some(SlowResult {
            packets: 1,
            from_ns: 1_039,
            usual_packets: 2,
            stages: vec![SlowStage {
                hop: 0,
                name: "qdisc".into(),
                slow_mean_ns: 1_039.0,
                mean_ns: 1_019.5,
            }],
            culprits: vec![Culprit {
                kind: DisturberKind::Task,
                name: "hog".into(),
                slow_percent: 100.0,
                usual_percent: 0.0,
                slow_mean_ns: 900.0,
                usual_mean_ns: 0.0,
            }],
        }),
        recorded: Some(FlightRecord {
            bound_ns: 1_038,
            whole_ns: 1_039,
            session: 7,
            sequence: 39,
            points: vec![RecordedPoint {
                at_ns: 0,
                point: Point::Queue,
                cpu: 1,
            }],
            events: vec![RecordedEvent {
                from_ns: -100,
                to_ns: 800,
                cpu: 1,
                kind: DisturberKind::Task,
                name: "hog".into(),
                id: 4242,
            }],
        }),
    };
    TraceResult {
        clock: Clock::Monotonic,
        one_of: 1,
        interval_ns: Some(1_000_000),
        missing: vec![MissingHook {
            hook: "fentry tpacket_rcv".into(),
            tells: "when it comes to the ring".into(),
            reason: "refused".into(),
        }],
        steal_percent: Some(0.5),
        paths: vec![path],
        warnings: vec!["events were lost".into()],
    }
}

/// Steering with everything in it.
pub(crate) fn steer() -> SteerResult {
    let landing = |queue, cpu, packets| SteerLanding {
        queue,
        cpu,
        to: SteerTo::Stack,
        packets,
    };
    let mut steer = SteerResult {
        interface: "eth0".into(),
        driver: Some("igb".into()),
        sender: Some("eth1".into()),
        elapsed_ns: 1_000_000_000,
        settings: vec![SteerSetting {
            interface: "eth0".into(),
            what: "rule 15 for receive queues".into(),
            wanted: "pcp:5 1".into(),
            obtained: "pcp:5 1".into(),
        }],
        rules: Some(vec![SteerRule {
            location: 15,
            flow: SteerFlow::VlanPriority(5),
            queue: Some(1),
        }]),
        rss_queues: vec![0, 1],
        classes: vec![SteerClass {
            flow: SteerFlow::VlanPriority(5),
            wanted_queue: Some(1),
            wanted_cpu: Some(1),
            sent_packets: Some(1_000),
            landings: vec![landing(0, 0, 1_000)],
        }],
        others: vec![landing(0, 0, 3)],
        queues: vec![SteerQueue {
            queue: 0,
            irq: Some(41),
            irq_name: Some("eth0-TxRx-0".into()),
            irq_cpus: vec![0],
            interrupts: vec![SteerCount { cpu: 0, count: 900 }],
            driver_packets: Some(1_003),
            rps_cpus: vec![0],
        }],
        cpus: vec![SteerCpu {
            cpu: 0,
            net_rx: 950,
            received_rps: 0,
        }],
        xsk_not_counted: None,
        threads: vec![SteerThread {
            id: 4_711,
            name: "CPU 0/KVM".into(),
            wanted_cpus: vec![1],
            ran_ns: 250_000_000,
            seen: vec![SteerCount { cpu: 1, count: 40 }],
        }],
        sentences: Vec::new(),
    };
    steer.sentences = crate::steer::judge(&steer);
    steer
}
