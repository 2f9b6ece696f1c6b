//! What XDP could not do with packets during a run: redirects that failed, programs that aborted, by the kernel's tracepoints.

use ringside_bpf::{XdpEventKind, XdpEvents};
use ringside_measure::schema::XdpFault;
use ringside_nic::Interface;

/// Counts for some interfaces of the calling thread's namespace, from when it is made.
pub(super) struct Faults {
    /// Without the capabilities, or BTF, they are not counted: a run does without.
    events: Option<XdpEvents>,
    namespace: u64,
    interfaces: Vec<(u32, String)>,
}

impl Faults {
    pub(super) fn watch(interfaces: &[Interface]) -> Self {
        Self {
            events: XdpEvents::start().ok(),
            namespace: rustix::fs::stat("/proc/thread-self/ns/net").map_or(0, |stat| stat.st_ino),
            interfaces: interfaces
                .iter()
                .map(|interface| (interface.index(), interface.name().to_owned()))
                .collect(),
        }
    }

    /// All since then; `None` where they are not counted.
    pub(super) fn end(self) -> Option<Vec<XdpFault>> {
        let counts = self.events?.counts().ok()?;
        let mut faults: Vec<XdpFault> = counts
            .into_iter()
            .filter(|event| u64::from(event.namespace) == self.namespace && event.count != 0)
            .filter_map(|event| {
                let (_, interface) = self.interfaces.iter().find(|(index, _)| *index == event.interface)?;
                Some(XdpFault {
                    interface: interface.clone(),
                    what: in_words(event.kind),
                    packets: event.count,
                })
            })
            .collect();
        faults.sort_by(|a, b| (&a.interface, &a.what).cmp(&(&b.interface, &b.what)));
        Some(faults)
    }
}

/// `redirect failed: No buffer space available (errno 105)`, `exception: XDP_ABORTED`
pub(crate) fn in_words(kind: XdpEventKind) -> String {
    match kind {
        XdpEventKind::Redirect(errno) => {
            let code = i32::try_from(errno).unwrap_or_default();
            let text = std::io::Error::from_raw_os_error(code).to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("redirect failed: {text} (errno {errno})")
        }
        XdpEventKind::Exception(verdict) => format!("exception: {}", verdict.name()),
        _ => "unknown".to_owned(),
    }
}
