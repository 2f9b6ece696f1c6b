//! The features of the kernel, each with the Linux that brought it.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{answer, probe, write_line, write_title};

/// Whether the kernel offers a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does: it was tried.
    Yes,
    /// It does not.
    No,
    /// It could not be tried, for this reason: mostly a capability that is missing.
    Unknown(String),
}

impl Support {
    /// Whether it is offered; `None` if that could not be tried.
    pub fn known(&self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No => Some(false),
            Self::Unknown(_) => None,
        }
    }

    /// Why it could not be tried.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Unknown(reason) => Some(reason),
            _ => None,
        }
    }
}

/// What a try that stopped early told.
impl From<Result<(), Support>> for Support {
    fn from(tried: Result<(), Support>) -> Self {
        tried.map_or_else(|told| told, |()| Self::Yes)
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("yes"),
            Self::No => f.write_str("no"),
            Self::Unknown(reason) => write!(f, "unknown ({reason})"),
        }
    }
}

/// One of the features of [`KernelCapabilities`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KernelFeature<'a> {
    /// The field's name, in JSON too.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// The Linux that brought it, such as `5.10`.
    pub since: &'static str,
    /// Whether it is offered.
    pub support: &'a Support,
}

/// Makes the structure from a table, so that name, text and version of a feature stand in one place.
macro_rules! kernel_features {
    (
        $(#[$type_doc:meta])*
        $name:ident { $( $(#[$doc:meta])* $field:ident = $since:literal, $what:literal; )+ }
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            /// The running kernel's release (`6.18.44`). Nothing else follows from it.
            pub release: String,
            $(
                #[doc = concat!($what, ". Linux ", $since, ".")]
                #[doc = ""]
                $(#[$doc])*
                pub $field: Support,
            )+
        }

        impl $name {
            /// The features, oldest first.
            pub fn features(&self) -> impl Iterator<Item = KernelFeature<'_>> {
                [$( KernelFeature {
                    name: stringify!($field),
                    what: $what,
                    since: $since,
                    support: &self.$field,
                }, )+]
                .into_iter()
            }
        }
    };
}

kernel_features! {
    /// What the kernel can do for AF_XDP, found out by trying and not by its version: distributions backport, and leave out.
    ///
    /// A kernel lacks a feature for its age, or for how it was built: AF_XDP needs `CONFIG_XDP_SOCKETS`, busy-polling
    /// `CONFIG_NET_RX_BUSY_POLL`.
    KernelCapabilities {
        /// `socket(AF_XDP)`. To try it takes `CAP_NET_RAW`.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_create>
        #[doc(alias = "AF_XDP")]
        af_xdp = "4.18", "AF_XDP sockets";
        /// The kernel tells when it must be woken: the rings have a word of flags.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_USE_NEED_WAKEUP>
        #[doc(alias = "XDP_USE_NEED_WAKEUP")]
        need_wakeup = "5.4", "need_wakeup";
        /// Frames of any size, at any address ([`QueueOptions::unaligned_chunks`](crate::QueueOptions::unaligned_chunks)).
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_UMEM_UNALIGNED_CHUNK_FLAG>
        #[doc(alias = "XDP_UMEM_UNALIGNED_CHUNK_FLAG")]
        unaligned_chunks = "5.4", "unaligned chunks";
        /// All of [`KernelStats`](crate::KernelStats) and not its first three only.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/xdp_statistics>
        #[doc(alias = "XDP_STATISTICS")]
        six_statistics = "5.9", "six counters in XDP_STATISTICS";
        /// XDP programs that are detached when their process ends ([`XdpLink`](crate::XdpLink)). To try it takes `CAP_BPF`,
        /// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_xdp_link_attach>
        #[doc(alias = "BPF_LINK_CREATE")]
        xdp_link = "5.9", "bpf_link for XDP programs";
        /// One UMEM for several queues and interfaces ([`SharedUmem`](crate::SharedUmem)). To try it takes `CAP_NET_RAW`,
        /// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_SHARED_UMEM>
        #[doc(alias = "XDP_SHARED_UMEM")]
        shared_umem = "5.10", "one UMEM for several queues and interfaces";
        /// Busy-polling in place of interrupts ([`QueueOptions::busy_poll`](crate::QueueOptions::busy_poll)). To try it takes
        /// `CAP_NET_RAW` and `CAP_NET_ADMIN`.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/SO_PREFER_BUSY_POLL>
        #[doc(alias = "SO_PREFER_BUSY_POLL")]
        preferred_busy_poll = "5.11", "preferred busy-polling, with a budget";
        /// XDP programs for packets of several buffers. To try it takes `CAP_BPF` and `CAP_NET_ADMIN`.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/BPF_F_XDP_HAS_FRAGS>
        #[doc(alias = "BPF_F_XDP_HAS_FRAGS")]
        frags_programs = "5.18", "XDP programs for packets of several buffers";
        /// XDP programs for one device, which may ask it for metadata. To try it takes `CAP_BPF`, `CAP_NET_ADMIN` and
        /// `CAP_SYS_ADMIN`.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/BPF_F_XDP_DEV_BOUND_ONLY>
        #[doc(alias = "BPF_F_XDP_DEV_BOUND_ONLY")]
        device_bound_programs = "6.3", "XDP programs bound to a device, for RX metadata";
        /// Packets in several frames ([`QueueOptions::multi_buffer`](crate::QueueOptions::multi_buffer)). To try it takes
        /// `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_USE_SG>
        #[doc(alias = "XDP_USE_SG")]
        multi_buffer = "6.6", "packets in several frames (XDP_USE_SG)";
        /// Room for TX metadata in front of packets, asked for by its length.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/xdp_umem_reg>
        #[doc(alias = "tx_metadata_len")]
        tx_metadata = "6.8", "TX metadata";
        /// On copy paths the kernel fills in the checksum that TX metadata asks for.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_UMEM_TX_SW_CSUM>
        #[doc(alias = "XDP_UMEM_TX_SW_CSUM")]
        tx_software_checksum = "6.8", "TX metadata: checksum by the kernel";
        /// The flag without which newer kernels take no notice of the length of TX metadata.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_UMEM_TX_METADATA_LEN>
        #[doc(alias = "XDP_UMEM_TX_METADATA_LEN")]
        tx_metadata_len_flag = "6.11", "TX metadata: flag XDP_UMEM_TX_METADATA_LEN";
        /// A time before which a packet is not sent, for the device to keep
        /// ([`TxMeta::launch_time`](crate::tx_metadata::TxMeta::launch_time)). Not a try: the kernel's type information tells
        /// whether `struct xsk_tx_metadata` has room for it.
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_TXMD_FLAGS_LAUNCH_TIME>
        #[doc(alias = "XDP_TXMD_FLAGS_LAUNCH_TIME")]
        tx_launch_time = "6.15", "TX metadata: launch time";
        /// How many packets a wake-up call sends on copy paths ([`QueueOptions::tx_budget`](crate::QueueOptions::tx_budget)).
        /// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_MAX_TX_SKB_BUDGET>
        #[doc(alias = "XDP_MAX_TX_SKB_BUDGET")]
        tx_budget = "6.17", "packets per wake-up call, to be set";
    }
}

impl KernelCapabilities {
    /// Tries each feature, on sockets and programs that are closed again at once.
    ///
    /// What needs an interface is tried on the loopback interfaces of two network namespaces, which a thread makes for
    /// itself and which end with it. No interface of the user's is touched and no limit changed. It takes tens of
    /// milliseconds, and at the most 6 pages of locked memory.
    ///
    /// Root sees everything. With less, a feature that cannot be tried is [`Support::Unknown`] and names the capability
    /// that is missing.
    pub fn probe() -> Self {
        probe::probe()
    }
}

/// A line a feature: its name, the answer, and the Linux that brought it. Below them why some could not be tried.
impl fmt::Display for KernelCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_title(f, &format!("The kernel, Linux {}", self.release), "there since")?;
        let mut reasons = Vec::new();
        for feature in self.features() {
            write_line(f, feature.what, answer(feature.support.known()), feature.since)?;
            match feature.support.reason() {
                Some(reason) if !reasons.contains(&reason) => reasons.push(reason),
                _ => {}
            }
        }
        for reason in reasons {
            write!(f, "\n  unknown because: {reason}")?;
        }
        Ok(())
    }
}

/// `release`, and for each feature an object: `available` (`null` if unknown), `since`, and `reason` (`null` if known).
impl Serialize for KernelCapabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Entry<'a> {
            available: Option<bool>,
            since: &'static str,
            reason: Option<&'a str>,
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("release", &self.release)?;
        for feature in self.features() {
            let entry = Entry {
                available: feature.support.known(),
                since: feature.since,
                reason: feature.support.reason(),
            };
            map.serialize_entry(feature.name, &entry)?;
        }
        map.end()
    }
}
