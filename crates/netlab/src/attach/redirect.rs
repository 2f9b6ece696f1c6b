//! XDP programs between the uplink and a TAP device.

use std::sync::Arc;

use ringside_bpf::{Link, RedirectLosses, Redirected, Redirector, Traffic};
use ringside_nic::Promiscuous;

use super::{AttachConfig, Offload, Uplink, bpf};
use crate::lab::inside;
use crate::{Device, GuestTap, Result};

/// An XDP program on the uplink that sends packets into the ring of the guest's TAP device, and one on the TAP device that sends what the guest
/// sends out of the uplink. The stack sees none of them.
///
/// There are two manners. With [`XdpRedirect::attach`] it is all packets. Then nothing is there that would put TCP segments together (GRO), so each
/// is an entry of the TAP device's ring and a packet for the guest: under load it fills, and what comes waits behind that.
/// With [`XdpRedirect::express`] it is only those that must not wait, and the others go by a bridge, put together.
/// docs/xdp-to-guests.md has what that is worth.
#[derive(Debug)]
#[non_exhaustive]
pub struct XdpRedirect {
    // The programs go first: packets then find what is there without them.
    _links: [Link; 2],
    _guests: Promiscuous,
    in_: Redirector,
    out: Redirector,
    /// Of packets to the guest; `None` on a kernel that does not let that be counted.
    losses: Option<RedirectLosses>,
    /// The guest's device.
    pub tap: Arc<GuestTap>,
    bridge: Option<Device>,
    /// The hardware address of the guest's NIC.
    pub mac: [u8; 6],
    _offloads: Vec<Offload>,
}

impl XdpRedirect {
    /// Makes one that redirects all packets. The guest makes its checksums and segments itself; checksums that a sender behind a veth leaves to
    /// it are completed on the way.
    ///
    /// # Errors
    ///
    /// [`Error::Bpf`](crate::Error::Bpf) if the kernel refuses a program, or another one is attached; what it says about the TAP device.
    pub fn attach(uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        // Frames of a device with the header about what is left to do lose it on the way: none is to have one.
        let tap = config.tap(uplink, false)?;
        Self::of(Redirected::All, tap, None, uplink, config)
    }

    /// Makes one that redirects the packets of `config.express`, and has a bridge for the others.
    ///
    /// # Errors
    ///
    /// As [`XdpRedirect::attach`].
    pub fn express(uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        let tap = config.tap(uplink, true)?;
        let bridge = config.bridge(uplink, &tap)?;
        Self::of(config.express, tap, Some(bridge), uplink, config)
    }

    fn of(
        which: Redirected,
        tap: GuestTap,
        bridge: Option<Device>,
        uplink: &Uplink<'_>,
        config: &AttachConfig,
    ) -> Result<Self> {
        // A veth takes redirected frames only while its other end polls (NAPI), which takes GRO there, or an XDP program.
        // https://elixir.bootlin.com/linux/v6.18/C/ident/veth_xdp_xmit
        // A VLAN tag that is left to the device is not in the packet that the program sees, and is lost on the way.
        let mut offloads = vec![
            Offload::set_at_peer(uplink, "rx-gro", true)?,
            Offload::tags_in_packets(uplink)?,
        ];
        if bridge.is_some() {
            // Behind a veth with a program of any kind the other end sends no long packets any more. What it sends is put together here.
            // https://elixir.bootlin.com/linux/v6.18/C/ident/veth_xdp_set
            offloads.push(Offload::set(uplink.ns, uplink.interface, "rx-gro", true)?);
        }
        let [up, down] = [uplink.interface.index(), tap.device.interface.index()];
        let load = || Redirector::load(which).map_err(bpf("load an XDP program for", uplink));
        let (in_, out) = (load()?, load()?);
        let join = || -> Result<_, ringside_bpf::Error> {
            in_.send_to(down)?;
            out.send_to(up)?;
            let losses = RedirectLosses::start(ringside_bpf::namespace(), up).ok();
            let links = [in_.attach(up, config.xdp_mode)?, out.attach(down, config.xdp_mode)?];
            Ok((losses, links))
        };
        // What is for the guest is for none of the NIC's own addresses.
        let guests = inside(uplink.ns, || uplink.interface.promiscuous())?;
        let (losses, links) = uplink.ns.try_run(join)?.map_err(bpf("redirect packets of", uplink))?;
        Ok(Self {
            _links: links,
            _guests: guests,
            in_,
            out,
            losses,
            tap: Arc::new(tap),
            bridge,
            mac: config.mac,
            _offloads: offloads.into_iter().flatten().collect(),
        })
    }

    /// The bridge for packets that are not redirected.
    #[must_use]
    pub fn bridge(&self) -> Option<&Device> {
        self.bridge.as_ref()
    }

    /// What the programs did: to the guest, and from it.
    ///
    /// # Errors
    ///
    /// [`Error::Bpf`](crate::Error::Bpf).
    pub fn traffic(&self) -> Result<[Traffic; 2]> {
        let read = || Ok([self.in_.traffic()?, self.out.traffic()?]);
        read().map_err(self.failed())
    }

    /// Packets to the guest that were redirected and then dropped, and are not among those that the TAP device says that it has dropped (`tx_dropped`): that
    /// counts one of each burst. `None` on a kernel without BTF, where that one is all that is known.
    ///
    /// # Errors
    ///
    /// [`Error::Bpf`](crate::Error::Bpf).
    pub fn lost(&self) -> Result<Option<u64>> {
        let lost = self.losses.as_ref().map(RedirectLosses::lost).transpose();
        let lost = lost.map_err(self.failed())?;
        Ok(lost.map(|lost| lost.packets.saturating_sub(lost.bursts)))
    }

    fn failed(&self) -> impl Fn(ringside_bpf::Error) -> crate::Error + '_ {
        |source| crate::Error::Bpf {
            operation: "count the packets of",
            interface: self.tap.device.interface.name().to_owned(),
            namespace: self.tap.device.ns.name().to_owned(),
            source: Box::new(source),
        }
    }
}
