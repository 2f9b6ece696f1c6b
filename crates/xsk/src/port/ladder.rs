//! The ladder of modes, and what has been opened on it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use ringside_nic::Interface;

use super::Loaded;
use super::guard::leave_map;
use crate::error::Error;
use crate::link::Link;
use crate::mode::{Mode, Path};
use crate::nic_buffers;
use crate::options::{Direction, QueueOptions, Sizes};
use crate::program::{AttachMode, XdpLink, XskMap};
use crate::queue::{LACKS_PROGRAM, Queue, finish};
use crate::socket::{Failure, Request};
use crate::umem::{SharedUmem, check_budget};

/// The modes, from best to worst, until one is had.
pub(super) struct Ladder<'a> {
    pub(super) interface: &'a Interface,
    pub(super) queues: &'a BTreeSet<u32>,
    pub(super) options: &'a QueueOptions,
    /// Why its queues have fewer frames than by default, if they have.
    pub(super) short_of: Option<String>,
    pub(super) nic_ring: u32,
    pub(super) shared: Option<&'a SharedUmem>,
    pub(super) mtu: u32,
    pub(super) watch: &'a Arc<Link>,
    /// Zero-copy was to be had but for an XDP program, which a port that only sends does not have
    /// by itself.
    pub(super) lacks_program: Cell<bool>,
    /// Why packets of the interface itself never come to a socket by native XDP.
    pub(super) not_native: Option<&'static str>,
}

impl Ladder<'_> {
    pub(super) fn climb_down(&self, loaded: &Loaded, mode: Mode) -> Result<(Vec<Queue>, Option<XdpLink>), Error> {
        let receives = loaded.map.is_some();
        if receives && mode == Mode::Require(Path::Copy) {
            return Err(Error::Setting {
                setting: "mode",
                value: "copy".into(),
                reason: "a port that receives copies natively or generically: require one of these".into(),
            });
        }
        let steps: Vec<Path> = match (mode, receives) {
            (Mode::Auto, true) => Path::LADDER.to_vec(),
            (Mode::Auto, false) => vec![Path::ZeroCopy, Path::Copy],
            (Mode::Require(Path::NativeCopy | Path::Generic), false) => vec![Path::Copy],
            (Mode::Require(path), _) => vec![path],
        };
        // On every way out of here sockets leave the XSKMAP first and are closed last.
        let mut opened = Opened::new(loaded.map.as_ref());
        let mut tried = Vec::new();
        let mut no_native = false;
        for &path in &steps {
            if no_native && path == Path::NativeCopy {
                continue;
            }
            if let (true, Some(reason)) = (receives && path != Path::Generic, self.not_native) {
                tried.push(format!("{path} was not tried: {reason}"));
                continue;
            }
            if let Err(error) = self.attach(loaded, path, &mut opened.link) {
                match error {
                    Error::Attach { .. } if mode == Mode::Auto => {
                        no_native = true;
                        tried.push(error.to_string());
                    }
                    error => return Err(error),
                }
                continue;
            }
            match self.open_all(loaded, (path, &tried), &mut opened.queues) {
                Ok(()) => return Ok(opened.take()),
                Err(Refused::Step(why)) => {
                    opened.close_queues();
                    tried.push(format!("{path} refused: {why}"));
                    if cfg!(feature = "attach") && self.lacks_program.get() {
                        break;
                    }
                }
                Err(Refused::Fatal(error)) => return Err(error),
            }
        }
        Err(Error::Mode {
            interface: self.interface.name().to_owned(),
            wanted: steps[steps.len() - 1],
            reason: tried.join("; "),
        })
    }

    /// Attaches our program as `path` needs it; a link that already is like that stays, since on
    /// real NICs attaching can reset the link.
    fn attach(&self, loaded: &Loaded, path: Path, link: &mut Option<XdpLink>) -> Result<(), Error> {
        let Some(program) = loaded.program_for(path, self.interface)? else {
            return Ok(());
        };
        let mode = if path == Path::Generic {
            AttachMode::Generic
        } else {
            AttachMode::Native
        };
        if link.as_ref().is_none_or(|link| link.mode() != mode) {
            *link = None;
            *link = Some(XdpLink::attach(program, self.interface, mode)?);
        }
        Ok(())
    }

    /// Refuses zero-copy for queues that only transmit if a shared UMEM has too few frames for all
    /// of them: those of the first ones would stay with the NIC.
    fn check_shared_frames(&self, path: Path) -> Result<(), Refused> {
        let Some(shared) = self.shared.filter(|_| path == Path::ZeroCopy) else {
            return Ok(());
        };
        if self.options.direction != Direction::Transmit {
            return Ok(());
        }
        let sizes = nic_buffers::sizes(
            self.interface,
            self.mtu,
            self.options,
            path,
            self.nic_ring,
            Some(shared),
        )
        .map_err(Refused::Fatal)?;
        let needed = sizes.frames as usize * self.queues.len();
        match shared.unclaimed() {
            left if left < needed => Err(Refused::Step(format!(
                "{} queue(s) take {needed} frames, with those for packets to the host, and the shared UMEM has {left} left",
                self.queues.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses queues whose frames do not fit the port's share of the memory, if they can take
    /// fewer: with zero-copy there are more of them.
    fn check_memory(&self, path: Path, options: &QueueOptions) -> Result<(), Refused> {
        if self.shared.is_some() || !options.can_take_fewer_frames() {
            return Ok(());
        }
        let (interface, mtu) = (self.interface, self.mtu);
        nic_buffers::sizes(interface, mtu, options, path, self.nic_ring, None)
            .and_then(|sizes| check_memory(interface, self.queues.len(), sizes, options))
            .map_err(Refused::Fatal)
    }

    fn open_all(
        &self,
        loaded: &Loaded,
        (path, why): (Path, &[String]),
        opened: &mut Vec<Queue>,
    ) -> Result<(), Refused> {
        self.check_shared_frames(path)?;
        let mut options = self.options.clone();
        let mut short_of = self.short_of.clone();
        loop {
            let fits = self.check_memory(path, &options);
            let with = (&options, short_of.as_deref());
            match fits.and_then(|()| self.open_each(loaded, with, (path, why), opened)) {
                // Of all queues: the first ones must not have what the last ones lack.
                Err(Refused::Fatal(Error::Memory { limit, .. }))
                    if self.shared.is_none() && options.take_fewer_frames() =>
                {
                    leave_map(loaded.map.as_ref(), opened);
                    opened.clear();
                    short_of = Some(limit);
                }
                result => return result,
            }
        }
    }

    fn open_each(
        &self,
        loaded: &Loaded,
        (options, short_of): (&QueueOptions, Option<&str>),
        (path, why): (Path, &[String]),
        opened: &mut Vec<Queue>,
    ) -> Result<(), Refused> {
        for &queue in self.queues {
            let mut queue = self.open_queue(loaded, options, (path, why), (queue, opened.is_empty()))?;
            if let Some(limit) = short_of {
                queue.note(options.fewer_frames(limit));
            }
            let inserted = loaded.map.as_ref().map_or(Ok(()), |map| map.insert(&queue));
            opened.push(queue);
            inserted.map_err(Refused::Fatal)?;
        }
        Ok(())
    }

    fn open_queue(
        &self,
        loaded: &Loaded,
        options: &QueueOptions,
        (path, why): (Path, &[String]),
        (queue, is_first): (u32, bool),
    ) -> Result<Queue, Refused> {
        let request = Request {
            interface: self.interface,
            queue,
            path,
            options,
            sizes: nic_buffers::sizes(self.interface, self.mtu, options, path, self.nic_ring, self.shared)
                .map_err(Refused::Fatal)?,
            shared: self.shared,
            mtu: self.mtu,
            link: self.watch,
        };
        let bound = request.open_patiently().map_err(|failure| match failure {
            Failure::Busy => Refused::Fatal(request.busy(loaded.attaches())),
            Failure::Refused(errno) => {
                let hint = request.hint(errno);
                // The reason is in the reports of all queues; the first one stands for all.
                let which = match is_first {
                    true => String::new(),
                    false => format!(" of queue {queue}"),
                };
                Refused::Step(format!("bind(){which} answered {errno}{hint}"))
            }
            Failure::Lacks(reason) => Refused::Step(reason),
            Failure::Fatal(error) => Refused::Fatal(error),
        })?;
        let queue = finish(&request, bound, path, why.to_vec());
        if queue.lacks_program() {
            queue.end_unused();
            self.lacks_program.set(!loaded.attaches());
            return Err(Refused::Step(LACKS_PROGRAM.to_owned()));
        }
        Ok(queue)
    }
}

/// Checks that there is memory for the frames of all queues of a port.
pub(super) fn check_memory(
    interface: &Interface,
    queues: usize,
    sizes: Sizes,
    options: &QueueOptions,
) -> Result<(), Error> {
    let total = sizes.geometry.bytes() as u64 * queues as u64;
    let whose = || format!("{}, {queues} queue(s)", interface.name());
    // The fewest frames have no share: they may still fit.
    let shares = match options.can_take_fewer_frames() {
        true => options.memory_shares,
        false => 1,
    };
    check_budget(whose, total, shares)
}

/// What has been opened so far, undone in the right order unless it is taken.
pub(super) struct Opened<'a> {
    pub(super) map: Option<&'a XskMap>,
    pub(super) link: Option<XdpLink>,
    pub(super) queues: Vec<Queue>,
}

impl<'a> Opened<'a> {
    fn new(map: Option<&'a XskMap>) -> Self {
        Self {
            map,
            link: None,
            queues: Vec::new(),
        }
    }

    pub(super) fn take(&mut self) -> (Vec<Queue>, Option<XdpLink>) {
        (std::mem::take(&mut self.queues), self.link.take())
    }

    fn close_queues(&mut self) {
        leave_map(self.map, &self.queues);
        self.queues.clear();
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        leave_map(self.map, &self.queues);
        self.link = None;
        self.queues.clear();
    }
}

/// Why a step of the ladder failed.
enum Refused {
    /// The next one may work.
    Step(String),
    /// It would not.
    Fatal(Error),
}
