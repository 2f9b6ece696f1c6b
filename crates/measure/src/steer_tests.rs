use super::*;
use crate::schema::{SteerCount, SteerRule, SteerThread};

const PCP: SteerFlow = SteerFlow::VlanPriority(5);

fn queue(queue: u32, irq: Option<u32>, cpu: u32) -> SteerQueue {
    SteerQueue {
        queue,
        irq,
        irq_name: None,
        irq_cpus: vec![cpu],
        interrupts: irq.map(|_| SteerCount { cpu, count: 10 }).into_iter().collect(),
        driver_packets: None,
        rps_cpus: Vec::new(),
    }
}

fn landing(queue: u32, cpu: u32, packets: u64) -> SteerLanding {
    SteerLanding {
        queue,
        cpu,
        to: SteerTo::Stack,
        packets,
    }
}

/// A NIC of two queues whose interrupts are on CPUs 0 and 1, and 100 packets of a class that asks for the second.
fn result(landings: Vec<SteerLanding>) -> SteerResult {
    SteerResult {
        interface: "eth0".into(),
        driver: Some("igb".into()),
        sender: Some("eth1".into()),
        elapsed_ns: 1,
        settings: Vec::new(),
        rules: Some(Vec::new()),
        rss_queues: vec![0, 1],
        classes: vec![SteerClass {
            flow: PCP,
            wanted_queue: Some(1),
            wanted_cpu: Some(1),
            sent_packets: Some(100),
            landings,
        }],
        others: Vec::new(),
        queues: vec![queue(0, Some(40), 0), queue(1, Some(41), 1)],
        cpus: Vec::new(),
        xsk_not_counted: None,
        threads: Vec::new(),
        sentences: Vec::new(),
    }
}

fn rule(queue: u32) -> Option<Vec<SteerRule>> {
    Some(vec![SteerRule {
        location: 15,
        flow: PCP,
        queue: Some(queue),
    }])
}

fn said(result: &SteerResult) -> Vec<(bool, String)> {
    judge(result).into_iter().map(|one| (one.right, one.text)).collect()
}

#[test]
fn what_lands_where_it_was_asked_for_is_right() {
    let result = result(vec![landing(1, 1, 100)]);
    let text = "PCP 5: all 100 packets arrived on queue 1, CPU 1, as asked for".to_owned();
    assert_eq!(said(&result), [(true, text)]);
}

#[test]
fn a_wrong_queue_is_told_with_its_cause() {
    let landings = || vec![landing(0, 0, 100)];
    let begin = "PCP 5: 100 of 100 packets arrived on queue 0, CPU 0, asked for queue 1, CPU 1: ";
    let cpu = "; the interrupt of queue 0 (IRQ 40) is handled on CPU 0, and RPS is off";
    let cases = [
        (
            Some(Vec::new()),
            "there is no rule for PCP 5: the NIC's hash decides, over queues 0, 1, which does not look at the priority",
        ),
        (
            rule(1),
            "rule 15 (PCP 5 to queue 1) was accepted and reads back, but the NIC does not follow it",
        ),
        (rule(0), "rule 15 says so"),
        (
            None,
            "the driver igb has no rules for queues, so the NIC's hash decides",
        ),
    ];
    for (rules, why) in cases {
        let result = SteerResult {
            rules,
            ..result(landings())
        };
        assert_eq!(said(&result), [(false, format!("{begin}{why}{cpu}"))]);
    }
    let mut missing = result(landings());
    missing.classes[0].wanted_queue = Some(7);
    assert!(
        said(&missing)[0].1.contains("there is no queue 7"),
        "{:?}",
        said(&missing)
    );
}

#[test]
fn a_wrong_cpu_is_told_with_its_cause() {
    let mut by_rps = result(vec![landing(1, 0, 60), landing(1, 1, 40)]);
    by_rps.queues[1].rps_cpus = vec![1, 0];
    let text = "PCP 5: 60 of 100 packets arrived on queue 1, CPU 0, asked for queue 1, CPU 1: RPS spreads queue 1 over CPUs 0, 1";
    assert_eq!(said(&by_rps), [(false, text.to_owned())]);
    let mut of_veth = result(vec![landing(1, 0, 100)]);
    (of_veth.driver, of_veth.queues[1].irq) = (Some("veth".into()), None);
    assert!(
        said(&of_veth)[0]
            .1
            .ends_with("queue 1: RPS is off, and a veth receives on the CPU that sends")
    );
}

#[test]
fn what_is_missing_is_told() {
    let [(right, text)] = &said(&result(Vec::new()))[..] else {
        panic!()
    };
    assert!(
        !right && text.starts_with("PCP 5: 100 packets were sent and none arrived"),
        "{text}"
    );
    let mut of_nobody = result(Vec::new());
    of_nobody.classes[0].sent_packets = None;
    assert_eq!(
        said(&of_nobody),
        [(
            false,
            "PCP 5: no packet arrived: somebody has to send such packets here".to_owned()
        )]
    );
    (of_nobody.classes[0].wanted_queue, of_nobody.classes[0].wanted_cpu) = (None, None);
    assert_eq!(said(&of_nobody), []);
    let some = said(&result(vec![landing(1, 1, 90)]));
    assert_eq!(some[0], (false, "PCP 5: 10 of 100 packets did not arrive".to_owned()));
    assert!(some[1].0);
}

/// An AF_XDP socket has its own ways to a queue and a CPU, and no stack that counts.
#[test]
fn what_af_xdp_takes_is_judged_by_its_own_ways() {
    let to = |to, queue, cpu| SteerLanding {
        to,
        ..landing(queue, cpu, 100)
    };
    let with = |landings| {
        let mut of_veth = result(landings);
        (of_veth.driver, of_veth.rules) = (Some("veth".into()), None);
        of_veth.queues.iter_mut().for_each(|queue| queue.irq = None);
        of_veth.queues[1].rps_cpus = vec![0];
        of_veth.classes[0].sent_packets = None;
        of_veth
    };
    let there = "PCP 5: all 100 packets arrived on queue 1, CPU 1 for an AF_XDP socket, as asked for";
    assert_eq!(said(&with(vec![to(SteerTo::Xsk, 1, 1)])), [(true, there.to_owned())]);
    let begin = "PCP 5: 100 of 100 packets arrived on queue 1, CPU 0 for an AF_XDP socket, asked for queue 1, CPU 1: ";
    let cases = [
        // RPS has a say where generic XDP is, behind it.
        (
            SteerTo::Xsk,
            "queue 1: native XDP comes before RPS, and a veth receives on the CPU that sends",
        ),
        (SteerTo::XskGeneric, "RPS spreads queue 1 over CPUs 0"),
    ];
    for (taker, why) in cases {
        assert_eq!(said(&with(vec![to(taker, 1, 0)])), [(false, format!("{begin}{why}"))]);
    }
    let elsewhere = &said(&with(vec![to(SteerTo::Xsk, 0, 1)]))[0].1;
    assert!(
        elsewhere.contains("which its AF_XDP socket has, or else its CPU chooses by XPS"),
        "{elsewhere}"
    );
    // The same place for two takers is two counts.
    let both = [with(vec![to(SteerTo::Xsk, 1, 1)]), with(vec![landing(1, 1, 3)])];
    let sum = together(both.iter()).unwrap();
    assert_eq!(sum.classes[0].landings, [landing(1, 1, 3), to(SteerTo::Xsk, 1, 1)]);
}

/// The NIC has taken the tag out, and XDP is told of it by nobody.
#[test]
fn a_tag_that_xdp_does_not_see_is_no_fault() {
    let mut untagged = result(Vec::new());
    untagged.others = vec![
        landing(0, 0, 3),
        SteerLanding {
            to: SteerTo::Xsk,
            ..landing(1, 1, 100)
        },
    ];
    let text = "PCP 5: no packet arrived with that tag, but 100 of no class for AF_XDP sockets, which do not see a tag that the NIC takes \
                out (rxvlan of ethtool -K)";
    let sentences = judge(&untagged);
    assert_eq!(sentences.len(), 1, "{sentences:#?}");
    assert_eq!((sentences[0].mark(), sentences[0].text.as_str()), ("unknown", text));
    // A port is seen, tag or not, and so is who else is there.
    untagged.classes[0].flow = SteerFlow::UdpPort(7000);
    let sentences = judge(&untagged);
    assert!(
        sentences.len() == 2 && sentences.iter().all(|one| one.mark() == "WRONG"),
        "{sentences:#?}"
    );
}

/// Where nobody counts what AF_XDP sockets take, that nothing was counted says nothing.
#[test]
fn what_cannot_be_counted_is_neither_right_nor_wrong() {
    let mut unseen = result(Vec::new());
    unseen.classes[0].sent_packets = None;
    unseen.xsk_not_counted = Some("the kernel has no such function".to_owned());
    let text = "PCP 5: no packet arrived in the stack, and what AF_XDP sockets take cannot be counted here: the kernel has no such \
                function";
    let sentences = judge(&unseen);
    assert_eq!((sentences[0].mark(), sentences[0].text.as_str()), ("unknown", text));
    (unseen.queues[0].driver_packets, unseen.queues[1].driver_packets) = (Some(2), Some(102));
    let counted = "; of packets of all kinds the driver counted 2 on queue 0, 102 on queue 1";
    assert_eq!(said(&unseen), [(false, format!("{text}{counted}"))]);
    unseen.sentences = judge(&unseen);
    assert!(!unseen.is_right());
    // Of several turns one that was counted does not speak for another.
    let counted = SteerResult {
        xsk_not_counted: None,
        ..unseen.clone()
    };
    let sum = together([&counted, &unseen].into_iter()).unwrap();
    assert_eq!(sum.sentences[0].mark(), "unknown");
    // What arrived is judged as ever.
    unseen.classes[0].landings = vec![landing(1, 1, 9)];
    assert_eq!(judge(&unseen)[0].mark(), "ok");
}

/// Load in the queue that was to be kept free.
#[test]
fn others_on_a_class_s_queue_are_told() {
    let mut result = result(vec![landing(1, 1, 100)]);
    result.others = vec![landing(0, 0, 5), landing(1, 1, 7)];
    result.classes.push(SteerClass {
        flow: SteerFlow::UdpPort(7000),
        wanted_queue: None,
        wanted_cpu: None,
        sent_packets: None,
        landings: vec![landing(1, 1, 3)],
    });
    let text = "3 packets of UDP port 7000 and 7 packets of no class landed on queue 1, which PCP 5 asked for: the NIC's hash chooses \
                from queues 0, 1";
    assert_eq!(said(&result)[1], (false, text.to_owned()));
    result.queues.pop();
    assert!(
        said(&result).iter().all(|(_, text)| !text.contains("no class")),
        "one queue is everybody's"
    );
}

#[test]
fn several_looks_are_one() {
    let (mut first, second) = (
        result(vec![landing(1, 1, 60)]),
        result(vec![landing(0, 0, 3), landing(1, 1, 97)]),
    );
    first.classes[0].sent_packets = Some(60);
    let sum = together([&first, &second].into_iter()).unwrap();
    assert_eq!(sum.classes[0].sent_packets, Some(160));
    assert_eq!(sum.classes[0].landings, [landing(0, 0, 3), landing(1, 1, 157)]);
    assert_eq!(sum.queues[1].interrupts, [SteerCount { cpu: 1, count: 20 }]);
    assert!(
        sum.sentences[0]
            .text
            .starts_with("PCP 5: 3 of 160 packets arrived on queue 0"),
        "{:?}",
        sum.sentences
    );
    assert_eq!(together(std::iter::empty()), None);
}

#[test]
fn a_setting_that_reads_back_otherwise_is_told() {
    let mut result = result(vec![landing(1, 1, 100)]);
    result.settings.push(crate::schema::SteerSetting {
        interface: "eth0".into(),
        what: "CPUs of IRQ 41".into(),
        wanted: "1".into(),
        obtained: "0".into(),
    });
    assert_eq!(
        said(&result)[0],
        (false, "CPUs of IRQ 41 of eth0 was set to 1 and is 0".to_owned())
    );
}

#[test]
fn a_pinned_thread_is_told_with_where_it_ran() {
    let thread = |seen: &[(u32, u64)]| SteerThread {
        id: 7,
        name: "CPU 0/TCG".into(),
        wanted_cpus: vec![1],
        ran_ns: 1_500_000,
        seen: seen.iter().map(|&(cpu, count)| SteerCount { cpu, count }).collect(),
    };
    let with = |seen: &[(u32, u64)]| SteerResult {
        classes: Vec::new(),
        threads: vec![thread(seen)],
        ..result(Vec::new())
    };
    let there = "the thread CPU 0/TCG ran for 1.5 ms, and was on CPU 1 each of the 9 times that it was looked at";
    assert_eq!(said(&with(&[(1, 9)])), [(true, there.into())]);
    let elsewhere = "the thread CPU 0/TCG was 2 of 9 times on CPU 0, pinned to CPU 1: somebody else has set its CPUs";
    assert_eq!(said(&with(&[(1, 7), (0, 2)])), [(false, elsewhere.into())]);
    let never = "the thread CPU 0/TCG, pinned to CPU 1, was never seen to run";
    assert_eq!(said(&with(&[])), [(true, never.into())]);
    let both = together([with(&[(1, 9)]), with(&[(1, 2), (0, 1)])].iter()).unwrap();
    assert_eq!(
        (both.threads[0].ran_ns, both.threads[0].seen.clone()),
        (3_000_000, thread(&[(1, 11), (0, 1)]).seen)
    );
    assert!(!both.is_right());
}
