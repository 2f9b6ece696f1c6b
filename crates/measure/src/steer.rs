//! Whether packets landed where they were to land, and if not, why: a function of what was counted and of what was set.

use crate::schema::{
    SteerClass, SteerCount, SteerFlow, SteerLanding, SteerQueue, SteerResult, SteerSentence, SteerThread, SteerTo,
};

/// What is to be said of a result: of each class that something was asked for, and of what landed on queues that were to be others'.
#[must_use]
pub fn judge(result: &SteerResult) -> Vec<SteerSentence> {
    let mut all: Vec<SteerSentence> = Vec::new();
    for setting in result
        .settings
        .iter()
        .filter(|setting| setting.wanted != setting.obtained)
    {
        all.push(wrong(format!(
            "{} of {} was set to {} and is {}",
            setting.what, setting.interface, setting.wanted, setting.obtained
        )));
    }
    for class in &result.classes {
        all.extend(of_class(result, class));
    }
    for class in &result.classes {
        all.extend(intruders(result, class));
    }
    all.extend(result.threads.iter().map(of_thread));
    all
}

/// Where a pinned thread ran.
fn of_thread(thread: &SteerThread) -> SteerSentence {
    let (name, wanted) = (&thread.name, list(&thread.wanted_cpus));
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let ran_ms = thread.ran_ns as f64 / 1e6;
    let looks: u64 = thread.seen.iter().map(|seen| seen.count).sum();
    if looks == 0 {
        return right(format!(
            "the thread {name}, pinned to CPU {wanted}, was never seen to run"
        ));
    }
    let is_elsewhere = |seen: &&SteerCount| !thread.wanted_cpus.contains(&seen.cpu);
    let elsewhere: Vec<&SteerCount> = thread.seen.iter().filter(is_elsewhere).collect();
    let times: u64 = elsewhere.iter().map(|seen| seen.count).sum();
    match times {
        0 => right(format!(
            "the thread {name} ran for {ran_ms:.1} ms, and was on CPU {wanted} each of the {looks} times that it was looked at"
        )),
        _ => wrong(format!(
            "the thread {name} was {times} of {looks} times on CPU {}, pinned to CPU {wanted}: somebody else has set its CPUs",
            list(&elsewhere.iter().map(|seen| seen.cpu).collect::<Vec<_>>())
        )),
    }
}

/// Several looks at the same steering as one: counts together, judged anew; `None` if there are none.
#[must_use]
pub fn together<'r>(all: impl Iterator<Item = &'r SteerResult>) -> Option<SteerResult> {
    let mut all = all.cloned();
    let mut sum = all.next()?;
    for one in all {
        // What was not counted once is not known of all.
        sum.xsk_not_counted = sum.xsk_not_counted.or(one.xsk_not_counted);
        sum.elapsed_ns += one.elapsed_ns;
        for (class, more) in sum.classes.iter_mut().zip(&one.classes) {
            class.sent_packets = class.sent_packets.zip(more.sent_packets).map(|(a, b)| a + b);
            add(&mut class.landings, &more.landings);
        }
        add(&mut sum.others, &one.others);
        for (queue, more) in sum.queues.iter_mut().zip(&one.queues) {
            queue.driver_packets = queue.driver_packets.zip(more.driver_packets).map(|(a, b)| a + b);
            add_counts(&mut queue.interrupts, &more.interrupts);
        }
        for (thread, more) in sum.threads.iter_mut().zip(&one.threads) {
            thread.ran_ns += more.ran_ns;
            add_counts(&mut thread.seen, &more.seen);
        }
        for (cpu, more) in sum.cpus.iter_mut().zip(&one.cpus) {
            cpu.net_rx += more.net_rx;
            cpu.received_rps += more.received_rps;
        }
    }
    sum.sentences = judge(&sum);
    Some(sum)
}

fn add_counts(sum: &mut Vec<SteerCount>, more: &[SteerCount]) {
    for count in more {
        match sum.iter_mut().find(|known| known.cpu == count.cpu) {
            Some(known) => known.count += count.count,
            None => sum.push(count.clone()),
        }
    }
}

fn add(sum: &mut Vec<SteerLanding>, more: &[SteerLanding]) {
    for landing in more {
        match sum
            .iter_mut()
            .find(|known| (known.queue, known.cpu, known.to) == (landing.queue, landing.cpu, landing.to))
        {
            Some(known) => known.packets += landing.packets,
            None => sum.push(landing.clone()),
        }
    }
    sum.sort_by_key(|landing| (landing.queue, landing.cpu, landing.to));
}

fn right(text: String) -> SteerSentence {
    SteerSentence {
        right: true,
        unknown: false,
        text,
    }
}

fn wrong(text: String) -> SteerSentence {
    SteerSentence {
        right: false,
        unknown: false,
        text,
    }
}

fn unknown(text: String) -> SteerSentence {
    SteerSentence {
        right: false,
        unknown: true,
        text,
    }
}

/// `queue 1, CPU 0`
fn place(queue: Option<u32>, cpu: Option<u32>) -> String {
    let parts = [
        queue.map(|queue| format!("queue {queue}")),
        cpu.map(|cpu| format!("CPU {cpu}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn of_class(result: &SteerResult, class: &SteerClass) -> Vec<SteerSentence> {
    let (name, arrived) = (class.flow, class.arrived());
    let asked = place(class.wanted_queue, class.wanted_cpu);
    let mut all = Vec::new();
    if arrived == 0 {
        let sentence = match (class.sent_packets, &result.xsk_not_counted) {
            // Nobody has asked for any.
            (None, _) if asked.is_empty() => return all,
            _ if hidden(result, class) > 0 => unknown(format!(
                "{name}: no packet arrived with that tag, but {} of no class for AF_XDP sockets, which do not see a tag that the NIC takes out \
                 (rxvlan of ethtool -K)",
                hidden(result, class)
            )),
            (None, None) => wrong(format!(
                "{name}: no packet arrived: somebody has to send such packets here"
            )),
            (None, Some(why)) => unknown(format!(
                "{name}: no packet arrived in the stack, and what AF_XDP sockets take cannot be counted here: {why}{}",
                by_driver(result)
            )),
            (Some(sent), None) => wrong(format!(
                "{name}: {sent} packets were sent and none arrived in the stack or for an AF_XDP socket: the NIC or an XDP program took \
                 them, or they went elsewhere"
            )),
            (Some(sent), Some(_)) => wrong(format!(
                "{name}: {sent} packets were sent and none arrived in the stack: the NIC or an XDP program took them, or they went \
                 elsewhere"
            )),
        };
        return vec![sentence];
    }
    if let Some(sent) = class.sent_packets.filter(|sent| arrived < *sent) {
        all.push(wrong(format!(
            "{name}: {} of {sent} packets did not arrive",
            sent - arrived
        )));
    }
    if asked.is_empty() {
        return all;
    }
    let is_queue = |landing: &SteerLanding| class.wanted_queue.is_none_or(|queue| queue == landing.queue);
    let is_cpu = |landing: &SteerLanding| class.wanted_cpu.is_none_or(|cpu| cpu == landing.cpu);
    let mut elsewhere: Vec<&SteerLanding> = class
        .landings
        .iter()
        .filter(|landing| !is_queue(landing) || !is_cpu(landing))
        .collect();
    if elsewhere.is_empty() {
        let taker = match class.landings.iter().all(|landing| landing.to != SteerTo::Stack) {
            true => XSK,
            false => "",
        };
        all.push(right(format!(
            "{name}: all {arrived} packets arrived on {asked}{taker}, as asked for"
        )));
        return all;
    }
    elsewhere.sort_by_key(|landing| std::cmp::Reverse(landing.packets));
    for landing in elsewhere {
        let mut why = Vec::new();
        if !is_queue(landing) {
            why.push(why_queue(result, class, landing));
        }
        if !is_cpu(landing) {
            why.push(why_cpu(result, landing));
        }
        all.push(wrong(format!(
            "{name}: {} of {arrived} packets arrived on queue {}, CPU {}{}, asked for {asked}: {}",
            landing.packets,
            landing.queue,
            landing.cpu,
            if landing.to == SteerTo::Stack { "" } else { XSK },
            why.join("; ")
        )));
    }
    all
}

const XSK: &str = " for an AF_XDP socket";

/// What the driver has counted, in which all packets are.
fn by_driver(result: &SteerResult) -> String {
    let of = |queue: &SteerQueue| Some(format!("{} on queue {}", queue.driver_packets?, queue.queue));
    let all: Vec<String> = result.queues.iter().filter_map(of).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("; of packets of all kinds the driver counted {}", all.join(", ")),
    }
}

fn why_queue(result: &SteerResult, class: &SteerClass, landing: &SteerLanding) -> String {
    let wanted = class.wanted_queue.unwrap_or(landing.queue);
    if result.queues.iter().all(|queue| queue.queue != wanted) {
        return format!("there is no queue {wanted}");
    }
    let Some(rules) = &result.rules else {
        return match result.driver.as_deref() {
            // Whoever sends to one may send from one.
            Some("veth") if landing.to != SteerTo::Stack => {
                "veth has no rules for queues: the sender's transmit queue decides, which its AF_XDP socket has, or else its CPU chooses \
                 by XPS"
                    .to_owned()
            }
            Some("veth") => {
                "veth has no rules for queues: the sender's transmit queue decides, which its CPU chooses by XPS"
                    .to_owned()
            }
            Some(driver) => format!("the driver {driver} has no rules for queues, so the NIC's hash decides"),
            None => "the interface has no rules for queues".to_owned(),
        };
    };
    let of_class = rules.iter().find(|rule| rule.flow == class.flow);
    match of_class.map(|rule| (rule.location, rule.queue)) {
        None => {
            let hash = match result.rss_queues.as_slice() {
                [] => "the NIC's hash decides".to_owned(),
                queues => format!("the NIC's hash decides, over queues {}", list(queues)),
            };
            let tag = match class.flow {
                SteerFlow::VlanPriority(_) => ", which does not look at the priority",
                _ => "",
            };
            format!("there is no rule for {}: {hash}{tag}", class.flow)
        }
        Some((location, Some(queue))) if queue == landing.queue => format!("rule {location} says so"),
        Some((location, Some(queue))) if queue == wanted => format!(
            "rule {location} ({} to queue {queue}) was accepted and reads back, but the NIC does not follow it",
            class.flow
        ),
        Some((location, _)) => format!("rule {location} says something else"),
    }
}

fn why_cpu(result: &SteerResult, landing: &SteerLanding) -> String {
    let of = |queue: &&SteerQueue| queue.queue == landing.queue;
    let Some(queue) = result.queues.iter().find(of) else {
        return "nothing is known of that queue".to_owned();
    };
    // For native XDP it is as if it were off.
    let rps = match (landing.to, queue.rps_cpus.as_slice()) {
        (_, []) => "RPS is off",
        (SteerTo::Xsk, _) => "native XDP comes before RPS",
        (_, cpus) => return format!("RPS spreads queue {} over CPUs {}", queue.queue, list(cpus)),
    };
    match queue.irq {
        Some(irq) => {
            let handled: Vec<u32> = queue.interrupts.iter().map(|count| count.cpu).collect();
            let by = if handled.is_empty() { &queue.irq_cpus } else { &handled };
            format!(
                "the interrupt of queue {} (IRQ {irq}) is handled on CPU {}, and {rps}",
                queue.queue,
                list(by)
            )
        }
        None if result.driver.as_deref() == Some("veth") => {
            format!(
                "queue {}: {rps}, and a veth receives on the CPU that sends",
                queue.queue
            )
        }
        None => format!("queue {}: {rps}, and it has no interrupt of its own", queue.queue),
    }
}

/// Packets for AF_XDP sockets that may be of a class which has none: a NIC that takes tags out tells the stack of them and not XDP.
fn hidden(result: &SteerResult, class: &SteerClass) -> u64 {
    if class.arrived() > 0 || !matches!(class.flow, SteerFlow::VlanPriority(_)) {
        return 0;
    }
    let of_xsk = result.others.iter().filter(|landing| landing.to != SteerTo::Stack);
    of_xsk.map(|landing| landing.packets).sum()
}

/// Others on the queue that a class asked for.
fn intruders(result: &SteerResult, class: &SteerClass) -> Option<SteerSentence> {
    let wanted = class.wanted_queue?;
    let on = |landings: &[SteerLanding]| -> u64 {
        let there = landings.iter().filter(|landing| landing.queue == wanted);
        there.map(|landing| landing.packets).sum()
    };
    let mut who: Vec<String> = Vec::new();
    for other in result.classes.iter().filter(|other| other.flow != class.flow) {
        let packets = on(&other.landings);
        // Of one that asked for another queue it is told already, and one that asked for this is at home.
        if packets > 0 && other.wanted_queue.is_none() {
            who.push(format!("{packets} packets of {}", other.flow));
        }
    }
    let others = on(&result.others);
    // Or they are its own.
    if others > 0 && hidden(result, class) == 0 {
        who.push(format!("{others} packets of no class"));
    }
    // A single queue is everybody's.
    if who.is_empty() || result.queues.len() < 2 {
        return None;
    }
    let why = match result.rss_queues.contains(&wanted) {
        true => format!(": the NIC's hash chooses from queues {}", list(&result.rss_queues)),
        false => String::new(),
    };
    Some(wrong(format!(
        "{} landed on queue {wanted}, which {} asked for{why}",
        who.join(" and "),
        class.flow
    )))
}

/// `0, 1`
fn list(numbers: &[u32]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "steer_tests.rs"]
mod tests;
