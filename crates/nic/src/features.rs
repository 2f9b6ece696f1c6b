//! Offloads of an interface, under the kernel's names.

use serde::Serialize;

use crate::ethtool::StringSet;
use crate::{Error, Interface, Result};

const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;

/// The names behind `ethtool -K … tx`.
const TX_CHECKSUMS: [&str; 4] = [
    "tx-checksum-ipv4",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv6",
    "tx-checksum-sctp",
];

/// One offload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Feature {
    /// The kernel's name: "tx-checksum-ip-generic", "rx-gro", ….
    pub name: String,
    /// Whether it is in force.
    pub active: bool,
    /// Whether it was asked for. It may be asked for and yet not in force, because another offload is off.
    pub requested: bool,
    /// Whether it can not be changed ("fixed" in `ethtool -k`).
    pub fixed: bool,
}

impl Interface {
    /// All offloads that the kernel knows, in its order.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    #[doc(alias = "ETHTOOL_GFEATURES")]
    pub fn features(&self) -> Result<Vec<Feature>> {
        let operation = "read the offloads";
        let names = self.strings(operation, StringSet::Features)?;
        let blocks = names.len().div_ceil(32);
        // struct ethtool_gfeatures: cmd, size, then per 32 features: available, requested, active, never_changed.
        // https://elixir.bootlin.com/linux/v6.18/C/ident/ethtool_gfeatures
        let buffer = self.ethtool(operation, ETHTOOL_GFEATURES, 8 + blocks * 16, |buffer| {
            buffer.set_u32(4, u32::try_from(blocks).unwrap_or(u32::MAX));
        })?;
        let bit = |feature: usize, field: usize| {
            buffer.u32_at(8 + feature / 32 * 16 + field * 4) & (1 << (feature % 32)) != 0
        };
        Ok(names
            .into_iter()
            .enumerate()
            // Bits without a name are unused.
            .filter(|(_, name)| !name.is_empty())
            .map(|(i, name)| Feature {
                name,
                requested: bit(i, 1),
                active: bit(i, 2),
                fixed: bit(i, 3) || !bit(i, 0),
            })
            .collect())
    }

    /// One offload.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFeature`] if the kernel knows none of that name.
    pub fn feature(&self, name: &str) -> Result<Feature> {
        self.features()?
            .into_iter()
            .find(|feature| feature.name == name)
            .ok_or_else(|| self.unknown_feature(name))
    }

    /// Switches one offload on or off and checks that it took effect.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFeature`]; [`Error::FeatureUnchanged`] if it is fixed or depends on another one.
    pub fn set_feature(&self, name: &str, on: bool) -> Result<()> {
        self.set_features(&[(name, on)])
    }

    /// Asks for one offload to be on or off, whether or not another one keeps it from taking effect now.
    pub(crate) fn request_feature(&self, name: &str, on: bool) -> Result<()> {
        match self.set_features(&[(name, on)]) {
            Err(Error::FeatureUnchanged { .. }) if self.feature(name)?.requested == on => Ok(()),
            other => other,
        }
    }

    /// Switches several offloads in one step and checks that all took effect.
    ///
    /// Offloads depend on one another: the kernel switches segmentation off with the checksum it needs, and on again
    /// with it, if it was asked for before.
    ///
    /// # Errors
    ///
    /// As [`Interface::set_feature`].
    #[doc(alias = "ETHTOOL_SFEATURES")]
    pub fn set_features(&self, changes: &[(&str, bool)]) -> Result<()> {
        let operation = "set the offloads";
        let names = self.strings(operation, StringSet::Features)?;
        let blocks = names.len().div_ceil(32);
        // struct ethtool_sfeatures: cmd, size, then per 32 features: valid, requested.
        let mut words = vec![[0_u32; 2]; blocks];
        for (name, on) in changes {
            let i = names
                .iter()
                .position(|known| known == name)
                .ok_or_else(|| self.unknown_feature(name))?;
            words[i / 32][0] |= 1 << (i % 32);
            words[i / 32][1] |= u32::from(*on) << (i % 32);
        }
        let fill = |buffer: &mut crate::sys::CommandBuffer| {
            buffer.set_u32(4, u32::try_from(blocks).unwrap_or(u32::MAX));
            for (i, [valid, requested]) in words.iter().enumerate() {
                buffer.set_u32(8 + i * 8, *valid);
                buffer.set_u32(12 + i * 8, *requested);
            }
        };
        match self.ethtool(operation, ETHTOOL_SFEATURES, 8 + blocks * 8, fill) {
            // EINVAL: a fixed offload is among them. The comparison below names it.
            Err(error) if error.errno() != Some(libc::EINVAL) => return Err(error),
            _ => {}
        }
        // A request that could not be fulfilled is only a flag in the return value, and does not say which one.
        let now = self.features()?;
        for (name, wanted) in changes {
            match now.iter().find(|feature| feature.name == *name) {
                Some(feature) if feature.active == *wanted => {}
                feature => {
                    return Err(Error::FeatureUnchanged {
                        interface: self.name().to_owned(),
                        feature: (*name).to_owned(),
                        wanted: *wanted,
                        fixed: feature.is_some_and(|feature| feature.fixed),
                    });
                }
            }
        }
        Ok(())
    }

    /// Switches the transmit checksum offload on or off, all protocols that the driver offers.
    ///
    /// A veth with this offload hands its peer packets whose UDP and TCP checksums cover the pseudo header only; an
    /// AF_XDP program on the peer sees them as they are. Switch it off on the sender to get whole checksums.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] without `CAP_NET_ADMIN`.
    pub fn set_tx_checksum(&self, on: bool) -> Result<()> {
        let features = self.features()?;
        let changes: Vec<_> = TX_CHECKSUMS
            .into_iter()
            .filter(|name| features.iter().any(|feature| feature.name == *name && !feature.fixed))
            .map(|name| (name, on))
            .collect();
        self.set_features(&changes)
    }

    fn unknown_feature(&self, name: &str) -> Error {
        Error::UnknownFeature {
            interface: self.name().to_owned(),
            feature: name.to_owned(),
        }
    }
}
