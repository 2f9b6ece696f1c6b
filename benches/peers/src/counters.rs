//! The veth's own XDP counters.
//!
//! veth counts for each receive queue what became of every packet that its XDP program saw.
//! `xdp_redirect` is counted after the packet was copied into an AF_XDP socket's RX ring, and not
//! at all when the ring or the fill ring had no room:
//! <https://elixir.bootlin.com/linux/v6.18/source/drivers/net/veth.c#L676>

use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::lab::Lab;

/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// `ETHTOOL_GSTRINGS`, `ETHTOOL_GSTATS`, `ETHTOOL_GSSET_INFO` of `linux/ethtool.h`.
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GSSET_INFO: u32 = 0x37;
/// `ETH_SS_STATS`: the set of statistics' names.
const STATS_SET: u32 = 1;
const NAME_LENGTH: usize = 32;

/// One counter of one interface. The interface's namespace is that in which the socket was made,
/// so that reading needs no namespace change.
#[derive(Debug)]
pub(crate) struct Counter {
    socket: OwnedFd,
    interface: String,
    index: usize,
    statistics: usize,
}

impl Counter {
    /// Finds a counter by its name as `ethtool -S` prints it.
    pub(crate) fn find(namespace: &str, interface: &str, name: &str) -> Result<Self> {
        let socket = Lab::within(namespace, || {
            socket(AddressFamily::INET, SocketType::DGRAM, None).context("opening a socket")
        })?;
        let mut counter = Self {
            socket,
            interface: interface.to_owned(),
            index: 0,
            statistics: 0,
        };
        let names = counter.names()?;
        counter.statistics = names.len();
        counter.index = names
            .iter()
            .position(|found| found == name)
            .with_context(|| format!("{interface} has no counter {name}"))?;
        Ok(counter)
    }

    /// The counter's value now.
    pub(crate) fn read(&self) -> Result<u64> {
        // struct ethtool_stats: command, count, then 64-bit values.
        let mut buffer = vec![0_u64; 1 + self.statistics];
        buffer[0] = words(GSTATS, u32::try_from(self.statistics)?);
        self.call(&mut buffer).context("ETHTOOL_GSTATS")?;
        Ok(buffer[1 + self.index])
    }

    fn names(&self) -> Result<Vec<String>> {
        // struct ethtool_sset_info: command, reserved, 64-bit mask, then 32-bit lengths.
        let mut info = [words(GSSET_INFO, 0), 1 << STATS_SET, 0];
        self.call(&mut info).context("ETHTOOL_GSSET_INFO")?;
        let count = u32::try_from(info[2] & 0xffff_ffff)?;
        // struct ethtool_gstrings: command, set, count, then names of 32 bytes each.
        let names = count as usize * NAME_LENGTH;
        let mut buffer = vec![0_u64; 2 + names / 8];
        buffer[0] = words(GSTRINGS, STATS_SET);
        buffer[1] = words(count, 0);
        self.call(&mut buffer).context("ETHTOOL_GSTRINGS")?;
        let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // Names begin behind three 32-bit words.
        Ok(bytes[12..12 + names]
            .chunks_exact(NAME_LENGTH)
            .map(|name| {
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                String::from_utf8_lossy(&name[..end]).into_owned()
            })
            .collect())
    }

    fn call(&self, buffer: &mut [u64]) -> std::io::Result<()> {
        // SAFETY: a plain C struct of integers, pointers and a union of those.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.interface.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        // SAFETY: the kernel reads the command from the buffer and writes as much as the counts in
        // it say; the callers sized it so.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        if result < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Two 32-bit words as they lie in memory.
fn words(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}
