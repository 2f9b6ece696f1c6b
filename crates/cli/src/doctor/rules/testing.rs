//! A machine, a process, a kernel and an interface on which nothing is wrong, for tests that spoil one thing each.

use std::collections::BTreeMap;

use ringside_measure::schema::System;
use ringside_nic::host::Cap;
use ringside_nic::{Channels, DeviceCapabilities, Interface, XdpFeatures};
use ringside_xsk::{KernelCapabilities, Support};

use super::super::facts::{Host, Nic, Offload, Process};
use super::super::finding::{About, Finding, Findings, Severity};
use crate::args::Cli;
use crate::caps::State;

/// What the rules found.
pub(super) struct Check(Vec<Finding>);

impl Check {
    pub(super) fn of(judge: impl FnOnce(&mut Findings<'_>)) -> Self {
        let mut all = Vec::new();
        judge(&mut Findings::about(About::Host, &mut all));
        Self(all)
    }

    fn bad(&self) -> Vec<&Finding> {
        self.0
            .iter()
            .filter(|finding| finding.severity > Severity::Ok)
            .collect()
    }

    pub(super) fn is_fine(&self) {
        assert!(self.bad().is_empty(), "{:#?}", self.bad());
    }

    /// The one finding that is not fine, which has to be this one and say why it matters.
    pub(super) fn only(&self, id: &str, severity: &str) -> Finding {
        let bad = self.bad();
        assert_eq!(bad.len(), 1, "{bad:#?}");
        assert_eq!((bad[0].id, bad[0].severity.name()), (id, severity), "{bad:#?}");
        assert!(!bad[0].why.is_empty(), "{bad:#?}");
        runs(bad[0]);
        bad[0].clone()
    }

    /// One finding of several.
    pub(super) fn finding(&self, id: &str, severity: &str) -> &Finding {
        let mut all = self
            .0
            .iter()
            .filter(|finding| (finding.id, finding.severity.name()) == (id, severity));
        all.next()
            .unwrap_or_else(|| panic!("no {severity} {id} in {:#?}", self.0))
    }

    /// All that is said of one thing.
    pub(super) fn all(&self, id: &str) -> Vec<&str> {
        let all = self.0.iter().filter(|finding| finding.id == id);
        all.map(|finding| finding.what.as_str()).collect()
    }

    /// The fact that is fine.
    pub(super) fn ok(&self, id: &str) -> &str {
        let mut all = self
            .0
            .iter()
            .filter(|finding| finding.id == id && finding.severity == Severity::Ok);
        &all.next().unwrap_or_else(|| panic!("no {id} in {:#?}", self.0)).what
    }
}

/// What is said to mend has to be a command; of ours it is known.
fn runs(finding: &Finding) {
    let ours = finding.mend.as_deref().filter(|mend| mend.starts_with("ringside "));
    if let Some(mend) = ours {
        let parsed = Cli::definition().try_get_matches_from(mend.split_whitespace());
        assert!(parsed.is_ok(), "{mend}: {}", parsed.unwrap_err());
    }
}

pub(super) fn process() -> Process {
    Process {
        program: "/bin/ringside".into(),
        capabilities: Cap::ALL.to_vec(),
        memlock_limit_bytes: None,
        cpus: vec![0, 1, 2, 3],
        cgroup_memory_left_bytes: None,
    }
}

pub(super) fn kernel() -> KernelCapabilities {
    let mut kernel = KernelCapabilities::probe();
    kernel.release = "7.0.0".into();
    for feature in [
        &mut kernel.af_xdp,
        &mut kernel.need_wakeup,
        &mut kernel.unaligned_chunks,
        &mut kernel.six_statistics,
        &mut kernel.xdp_link,
        &mut kernel.shared_umem,
        &mut kernel.preferred_busy_poll,
        &mut kernel.frags_programs,
        &mut kernel.device_bound_programs,
        &mut kernel.multi_buffer,
        &mut kernel.tx_metadata,
        &mut kernel.tx_metadata_len_flag,
        &mut kernel.tx_software_checksum,
        &mut kernel.tx_launch_time,
        &mut kernel.tx_budget,
    ] {
        *feature = Support::Yes;
    }
    kernel
}

pub(super) fn host() -> Host {
    Host {
        system: System {
            kernel_release: "7.0.0".into(),
            cpu_model: "some CPU".into(),
            cpus_online: 4,
            clocksource: Some("tsc".into()),
            ..System::default()
        },
        governors: BTreeMap::from([(0, "performance".into())]),
        smt_active: Some(false),
        isolated_cpus: vec![2, 3],
        nohz_full_cpus: vec![2, 3],
        huge_pages_free: 64,
        huge_page_bytes: 2 << 20,
        bpf_jit: Some(true),
        wake_up_limit_us: None,
        steal_percent: 0.0,
        steal_now_percent: 0.0,
    }
}

pub(super) fn device(features: XdpFeatures) -> DeviceCapabilities {
    // It cannot be made from outside its crate.
    let mut device = Interface::by_name("lo").unwrap().device_capabilities().unwrap();
    device.xdp_features = Some(features);
    device.xdp_zc_max_segs = None;
    device.rx_metadata = None;
    device.xsk_features = None;
    device
}

pub(super) fn nic() -> Nic {
    let mut channels = Channels::default();
    (channels.combined, channels.max_combined) = (4, 8);
    Nic {
        name: "eth0".into(),
        driver: None,
        kind: None,
        device: device(XdpFeatures::BASIC | XdpFeatures::REDIRECT | XdpFeatures::XSK_ZEROCOPY),
        state: State {
            interface: "eth0".into(),
            up: true,
            carrier: true,
            mtu_bytes: 1500,
            channels: Some(channels),
            rings: None,
            xdp_program: None,
            xdp_removal: None,
            qdiscs: Vec::new(),
            queues: None,
            napis: None,
        },
        socket_owners: Vec::new(),
        rx_queues: 4,
        tx_queues: 4,
        offloads: BTreeMap::from([(
            "rx-vlan-hw-parse".to_owned(),
            Offload {
                on: false,
                fixed: false,
            },
        )]),
        coalescing: BTreeMap::new(),
        irqs: Vec::new(),
        rss: None,
        flows: Vec::new(),
    }
}
