//! What packets and CPUs are named by, on the command line and in files.

use std::fmt;
use std::str::FromStr;

use ringside_bpf::LandingClass;
use ringside_measure::schema::SteerFlow;
use ringside_nic::{Knob, NtupleFlow};
use serde::Deserialize;

use crate::args::{List, list, list_or_none};

/// `FLOW[=QUEUE][@CPU]`: packets, and where they are to land.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ClassArg {
    pub(crate) flow: NtupleFlow,
    pub(crate) queue: Option<u32>,
    pub(crate) cpu: Option<u32>,
}

/// `FLOW=QUEUE`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct RuleArg(pub(crate) NtupleFlow, pub(crate) u32);

/// `QUEUE=CPUS`, or `QUEUE=none`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct CpusArg(pub(crate) u32, pub(crate) Vec<u32>);

/// `PRIORITY=PCP`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct EgressArg(pub(crate) u32, pub(crate) u8);

/// `PID:NAME=CPUS`: threads of a process whose names begin so.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PinArg {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) cpus: Vec<u32>,
}

impl FromStr for ClassArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str, what: &str| {
            let wrong =
                |_| format!("{text:?} is no {what}; write a class as pcp:5=1@0: VLAN priority 5 to queue 1, CPU 0");
            text.parse::<u32>().map_err(wrong)
        };
        let (rest, cpu) = match text.split_once('@') {
            Some((rest, cpu)) => (rest, Some(number(cpu, "CPU")?)),
            None => (text, None),
        };
        let (flow, queue) = match rest.split_once('=') {
            Some((flow, queue)) => (flow, Some(number(queue, "queue")?)),
            None => (rest, None),
        };
        Ok(Self {
            flow: flow.parse()?,
            queue,
            cpu,
        })
    }
}

impl FromStr for RuleArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no rule; write pcp:5=1 or udp:7000=1: to queue 1");
        let (flow, queue) = text.split_once('=').ok_or_else(wrong)?;
        Ok(Self(flow.parse()?, queue.parse().map_err(|_| wrong())?))
    }
}

impl FromStr for CpusArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not QUEUE=CPUS, such as 1=0 or 0=2-3, or 0=none");
        let (queue, cpus) = text.split_once('=').ok_or_else(wrong)?;
        Ok(Self(queue.parse().map_err(|_| wrong())?, list_or_none(cpus)?.0))
    }
}

impl FromStr for EgressArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not PRIORITY=PCP, such as 5=5; PCP is 0 to 7");
        let (priority, pcp) = text.split_once('=').ok_or_else(wrong)?;
        let pcp = pcp.parse().ok().filter(|pcp| *pcp <= 7).ok_or_else(wrong)?;
        Ok(Self(priority.parse().map_err(|_| wrong())?, pcp))
    }
}

impl FromStr for PinArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not PID:NAME=CPUS, such as 4711:vhost=1 or \"4711:CPU 0=2\"");
        let (pid, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (name, cpus) = rest.rsplit_once('=').ok_or_else(wrong)?;
        let List(cpus) = list(cpus)?;
        Ok(Self {
            pid: pid.parse().map_err(|_| wrong())?,
            name: name.to_owned(),
            cpus,
        })
    }
}

impl fmt::Display for ClassArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self.flow))?;
        if let Some(queue) = self.queue {
            write!(f, "={queue}")?;
        }
        self.cpu.map_or(Ok(()), |cpu| write!(f, "@{cpu}"))
    }
}

impl fmt::Display for RuleArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", written(self.0), self.1)
    }
}

impl fmt::Display for CpusArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.as_slice() {
            [] => write!(f, "{}=none", self.0),
            cpus => write!(f, "{}={}", self.0, Knob::cpu_list(cpus)),
        }
    }
}

impl fmt::Display for EgressArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.0, self.1)
    }
}

/// As it is read.
fn written(flow: NtupleFlow) -> String {
    match flow {
        NtupleFlow::VlanPriority(pcp) => format!("pcp:{pcp}"),
        NtupleFlow::UdpPort(port) => format!("udp:{port}"),
        // Which no text stands for.
        _ => flow.to_string(),
    }
}

macro_rules! from_text {
    ($($kind:ty),*) => { $(impl TryFrom<String> for $kind {
        type Error = String;

        fn try_from(text: String) -> Result<Self, String> {
            text.parse()
        }
    })* };
}

from_text!(ClassArg, RuleArg, CpusArg, EgressArg, PinArg);

impl ClassArg {
    pub(crate) fn counted(&self) -> LandingClass {
        match self.flow {
            NtupleFlow::VlanPriority(pcp) => LandingClass::VlanPriority(pcp),
            NtupleFlow::UdpPort(port) => LandingClass::UdpPort(port),
            // Which no text stands for: nothing has it.
            _ => LandingClass::VlanPriority(u8::MAX),
        }
    }
}

pub(crate) fn told(flow: NtupleFlow) -> SteerFlow {
    match flow {
        NtupleFlow::VlanPriority(pcp) => SteerFlow::VlanPriority(pcp),
        NtupleFlow::UdpPort(port) => SteerFlow::UdpPort(port),
        _ => SteerFlow::Other,
    }
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
