//! From facts to findings: plain functions, which know no system call.

mod host;
mod interface;
mod kernel;
mod process;
mod queues;
mod tried;

use super::facts::Facts;
use super::finding::{About, Finding, Findings};

/// All findings, those about the same thing together.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    let name = facts.interface.as_ref().map(|nic| nic.name.as_str());
    process::judge(&facts.process, &mut Findings::about(About::Process, &mut all));
    kernel::judge(&facts.kernel, &mut Findings::about(About::Kernel, &mut all));
    host::judge(&facts.host, name, &mut Findings::about(About::Host, &mut all));
    interface::judge_all(&facts.interfaces, &mut Findings::about(About::Interfaces, &mut all));
    if let Some(nic) = &facts.interface {
        let mut findings = Findings::about(About::Interface, &mut all);
        interface::judge(nic, &facts.kernel, &mut findings);
        queues::judge(nic, &facts.host, &mut findings);
    }
    if let Some(test) = &facts.veth {
        tried::judge_veth(test, &mut Findings::about(About::Veth, &mut all));
    }
    if let (Some(test), Some(nic)) = (&facts.live, &facts.interface) {
        tried::judge_live(test, nic, &mut Findings::about(About::Live, &mut all));
    }
    all
}

/// What was not looked at, and what it takes.
pub(super) fn not_tested(facts: &Facts) -> Vec<String> {
    let mut all = Vec::new();
    if facts.veth.is_none() {
        all.push("AF_XDP on a veth pair (--no-veth)".to_owned());
    }
    match (&facts.interface, &facts.live) {
        (None, _) => all.push("any interface that is there: name one, ringside doctor INTERFACE".to_owned()),
        (Some(nic), None) => all.push(format!(
            "whether {0} really does it: ringside doctor {0} --live binds its queues, and passes on all packets but the test's",
            nic.name
        )),
        (Some(nic), Some(test)) if test.failure.is_none() && tried::without_peer(test) => all.push(format!(
            "receiving on {}: with --peer IP probes come back, from `ringside echo` or by ICMP",
            nic.name
        )),
        _ => {}
    }
    all
}

/// Numbers such as 0-3,8.
fn list(numbers: &[u32]) -> String {
    ringside_nic::Knob::cpu_list(numbers)
}

/// Queues with the word for them.
fn queues(numbers: &[u32]) -> String {
    match numbers {
        [one] => format!("queue {one}"),
        several => format!("queues {}", list(several)),
    }
}

#[cfg(test)]
mod testing;
