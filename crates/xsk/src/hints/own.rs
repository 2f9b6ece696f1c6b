//! The hints of our own XDP program.

use super::{Btf, Hints, Layouts, Reader};

/// What Ringside's own XDP program ([`Program::Ringside`](crate::Program::Ringside)) tells about a packet, where it is asked to:
/// a port that is opened with [`Layouts::ringside`] asks.
#[derive(Hints, Clone, Copy, Debug, PartialEq, Eq)]
#[hints(name = "ringside_rx")]
#[repr(C)]
#[non_exhaustive]
pub struct RingsideRx {
    /// When the program saw the packet, in nanoseconds of CLOCK_MONOTONIC: in the driver's NAPI, before the copy into the frame.
    pub rx_ktime: u64,
    /// Packets of this queue that were redirected on this CPU since the program was loaded, before this one.
    pub packet: u64,
    /// The CPU on which the program ran.
    pub rx_cpu: u32,
    /// The queue on which the packet came.
    pub rx_queue: u32,
    /// What [`PortBuilder::mark`](crate::PortBuilder::mark) has set, 0 otherwise.
    pub mark: u32,
    /// The struct's id.
    pub btf_id: u32,
}

impl Layouts {
    /// The hints of Ringside's own XDP program, and their reader.
    ///
    /// ```no_run
    /// use ringside_xsk::hints::Layouts;
    /// use ringside_xsk::{Interface, Port, QueueOptions, Wait};
    ///
    /// let (layouts, rx) = Layouts::ringside();
    /// let mut port = Port::builder(Interface::by_name("eth0")?)
    ///     .options(QueueOptions::new().hints(layouts))
    ///     .open()?;
    /// let mut burst = port.queues_mut().next().unwrap().recv(Wait::Spin)?;
    /// for (packet, hints) in burst.with_hints(rx) {
    ///     println!("{} bytes: {hints:?}", packet.len());
    /// }
    /// # Ok::<(), ringside_xsk::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the process reads 64 other types of hints already.
    pub fn ringside() -> (Self, Reader<RingsideRx>) {
        let btf = Btf::object(ringside_bpf::XSK_OBJECT).expect("our own object has BTF");
        let mut layouts = Self::of(&btf).expect("one BTF has one struct for an id");
        let reader = layouts
            .reader()
            .expect("our own struct is as here, and there is room for its type");
        (layouts, reader)
    }
}
