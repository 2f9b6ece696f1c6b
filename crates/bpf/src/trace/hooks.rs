//! The hooks of the tracing programs, and which of them a kernel has.

use libbpf_rs::btf::{Btf, types};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::load;
use crate::trace::TraceOptions;

/// A hook that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MissingHook {
    /// `tracepoint net:net_dev_queue`, `fentry __dev_direct_xmit`.
    pub hook: String,
    /// What it would have told.
    pub tells: &'static str,
    /// Why it is not there.
    pub reason: String,
}

/// Where a program is attached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hook {
    program: &'static str,
    place: Place,
    tells: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Group and name.
    Tracepoint(&'static str, &'static str),
    Function(&'static str),
}

const fn tracepoint(program: &'static str, group: &'static str, name: &'static str, tells: &'static str) -> Hook {
    Hook {
        program,
        place: Place::Tracepoint(group, name),
        tells,
    }
}

const fn function(program: &'static str, name: &'static str, tells: &'static str) -> Hook {
    Hook {
        program,
        place: Place::Function(name),
        tells,
    }
}

const VECTORS: &str = "interrupts of CPUs among the disturbers";

/// In the order of a packet's way.
static HOOKS: &[Hook] = &[
    tracepoint(
        "trace_queue",
        "net",
        "net_dev_queue",
        "when the packet comes to the queueing discipline",
    ),
    tracepoint("trace_xmit", "net", "net_dev_start_xmit", "when the driver gets it"),
    tracepoint(
        "trace_raise",
        "irq",
        "softirq_raise",
        "when the soft interrupt for receiving is asked for",
    ),
    tracepoint(
        "trace_softirq",
        "irq",
        "softirq_entry",
        "when the soft interrupt for receiving begins",
    ),
    tracepoint(
        "trace_softirq_end",
        "irq",
        "softirq_exit",
        "when the soft interrupt for receiving ends",
    ),
    tracepoint(
        "trace_driver",
        "net",
        "napi_gro_receive_entry",
        "when the driver's poll hands the packet over",
    ),
    tracepoint(
        "trace_backlog",
        "net",
        "netif_rx",
        "when the packet is put on the backlog of a CPU",
    ),
    tracepoint(
        "trace_steered",
        "net",
        "netif_receive_skb_entry",
        "when RPS puts packets of drivers without GRO on the backlog of a CPU",
    ),
    tracepoint("trace_stack", "net", "netif_receive_skb", "when the stack takes it"),
    tracepoint(
        "trace_redirect",
        "xdp",
        "xdp_redirect",
        "when it is on the ring of an XDP socket",
    ),
    tracepoint("trace_ready", "sock", "sk_data_ready", "when the socket tells of it"),
    tracepoint("trace_waking", "sched", "sched_waking", "when its reader is woken up"),
    tracepoint("trace_switch", "sched", "sched_switch", "when its reader gets a CPU"),
    tracepoint(
        "watch_read",
        "raw_syscalls",
        "sys_enter",
        "when QEMU takes from a TAP device what XDP has put in its ring",
    ),
    tracepoint(
        "trace_copy",
        "skb",
        "skb_copy_datagram_iovec",
        "when it is copied to its reader",
    ),
    tracepoint(
        "trace_received",
        "sock",
        "sock_recv_length",
        "when a socket has copied a short packet to its reader",
    ),
    function(
        "trace_direct",
        "__dev_direct_xmit",
        "when the driver gets packets of XDP sockets, and of packet sockets past the queueing discipline",
    ),
    function(
        "trace_enqueued",
        "enqueue_to_backlog",
        "when RPS puts the packet on the backlog of a CPU that GRO had until then, and of RFS and lists of drivers that it does so at all",
    ),
    function(
        "trace_udp",
        "__udp_enqueue_schedule_skb",
        "when the packet comes into the queue of a UDP socket",
    ),
    function(
        "trace_consumed",
        "skb_consume_udp",
        "which packet a reader of a UDP socket has taken, unless the order in its queue tells",
    ),
    function(
        "trace_tpacket",
        "tpacket_rcv",
        "when the packet comes to the ring of a packet socket",
    ),
    function(
        "trace_xsk",
        "__xsk_map_redirect",
        "which packet it is that native XDP puts on the ring of an XDP socket, unless its program or reader tells",
    ),
    function(
        "trace_xsk_generic",
        "xsk_generic_rcv",
        "when generic XDP gives the packet to an XDP socket, and which it is, unless its program or reader tells",
    ),
    tracepoint(
        "watch_waking",
        "sched",
        "sched_waking",
        "when a guest's virtual CPUs are woken up",
    ),
    tracepoint(
        "watch_switch",
        "sched",
        "sched_switch",
        "when a guest's virtual CPUs run",
    ),
    tracepoint("disturb_switch", "sched", "sched_switch", "tasks among the disturbers"),
    tracepoint(
        "disturb_softirq",
        "irq",
        "softirq_entry",
        "soft interrupts among the disturbers",
    ),
    tracepoint(
        "disturb_softirq_end",
        "irq",
        "softirq_exit",
        "soft interrupts among the disturbers",
    ),
    tracepoint(
        "disturb_irq",
        "irq",
        "irq_handler_entry",
        "devices' interrupts among the disturbers",
    ),
    tracepoint(
        "disturb_irq_end",
        "irq",
        "irq_handler_exit",
        "devices' interrupts among the disturbers",
    ),
    tracepoint(
        "disturb_idle",
        "power",
        "cpu_idle",
        "sleep of CPUs among the disturbers",
    ),
    tracepoint("disturb_local_timer", "irq_vectors", "local_timer_entry", VECTORS),
    tracepoint("disturb_local_timer_end", "irq_vectors", "local_timer_exit", VECTORS),
    tracepoint("disturb_reschedule", "irq_vectors", "reschedule_entry", VECTORS),
    tracepoint("disturb_reschedule_end", "irq_vectors", "reschedule_exit", VECTORS),
    tracepoint("disturb_call_function", "irq_vectors", "call_function_entry", VECTORS),
    tracepoint(
        "disturb_call_function_end",
        "irq_vectors",
        "call_function_exit",
        VECTORS,
    ),
    tracepoint(
        "disturb_call_function_single",
        "irq_vectors",
        "call_function_single_entry",
        VECTORS,
    ),
    tracepoint(
        "disturb_call_function_single_end",
        "irq_vectors",
        "call_function_single_exit",
        VECTORS,
    ),
    tracepoint("disturb_irq_work", "irq_vectors", "irq_work_entry", VECTORS),
    tracepoint("disturb_irq_work_end", "irq_vectors", "irq_work_exit", VECTORS),
];

/// Those that are entries of functions.
pub(super) fn functions() -> impl Iterator<Item = &'static Hook> {
    HOOKS.iter().filter(|hook| hook.is_function())
}

/// Those that tell of tasks that are watched.
pub(super) fn of_tasks() -> impl Iterator<Item = &'static Hook> {
    ["watch_waking", "watch_switch"]
        .into_iter()
        .filter_map(Hook::of_program)
}

/// Why the kernel took a program not, in a line.
pub(super) fn refused(error: &Error) -> String {
    match error {
        Error::Load { source, .. } => format!("the kernel refuses its program: {source}"),
        other => other.to_string(),
    }
}

impl Hook {
    pub(super) fn of_program(name: &str) -> Option<&'static Self> {
        HOOKS.iter().find(|hook| hook.program == name)
    }

    /// Its place on a packet's way.
    pub(super) fn rank(&self) -> usize {
        HOOKS.iter().position(|hook| hook == self).unwrap_or(HOOKS.len())
    }

    pub(super) fn program(&self) -> &'static str {
        self.program
    }

    pub(super) fn is_function(&self) -> bool {
        matches!(self.place, Place::Function(_))
    }

    /// The one that it takes the place of, since it knows more.
    pub(super) fn replaces(&self) -> Option<&'static Self> {
        let of = match self.program {
            "trace_consumed" => "trace_received",
            _ => return None,
        };
        Self::of_program(of)
    }

    /// Whether it is of use to who wants such things.
    pub(super) fn is_wanted(&self, options: TraceOptions) -> bool {
        (options.tasks || !self.program.starts_with("watch"))
            && (options.disturbers || !self.program.starts_with("disturb"))
    }

    pub(super) fn missing(&self, reason: impl Into<String>) -> MissingHook {
        MissingHook {
            hook: match self.place {
                Place::Tracepoint(group, name) => format!("tracepoint {group}:{name}"),
                Place::Function(name) => format!("fentry {name}"),
            },
            tells: self.tells,
            reason: reason.into(),
        }
    }
}

/// What the running kernel says of itself.
pub(super) struct Kernel(Btf<'static>);

impl Kernel {
    pub(super) fn read(program: &'static str) -> Result<Self> {
        load::capture(program, Btf::from_vmlinux).map(Self)
    }

    /// Why a hook is not there.
    pub(super) fn lacks(&self, hook: &Hook) -> Option<&'static str> {
        match hook.place {
            // How a tracepoint that BPF can use shows: <https://elixir.bootlin.com/linux/v6.18/source/include/trace/bpf_probe.h>
            Place::Tracepoint(_, name) => {
                let found: Option<types::Typedef<'_>> = self.0.type_by_name(&format!("btf_trace_{name}"));
                found.is_none().then_some("this kernel has no such tracepoint")
            }
            Place::Function(name) => {
                let found: Option<types::Func<'_>> = self.0.type_by_name(name);
                found.is_none().then_some("this kernel has no such function")
            }
        }
    }
}

#[cfg(test)]
#[path = "hooks_tests.rs"]
mod tests;
