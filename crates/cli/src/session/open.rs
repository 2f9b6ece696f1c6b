//! Opening a command's port: everything that can be known to fail is told before anything is touched.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use ringside_nic::Interface;
use ringside_xsk::{Direction, Filter, Port, PortBuilder, Queue, QueueOptions, SharedUmem, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Carrier;
use crate::args::{OutputArgs, PortArgs, WaitArg};
use crate::{napi, output, pin};

/// How long a sleeping thread may take to notice the end of a run.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// How long to wait for a queue that is taken, without a word and with one.
const BUSY: Duration = Duration::from_millis(500);
const BUSY_LONG: Duration = Duration::from_secs(5);

/// What a thread does when there are no packets.
pub(crate) fn wait(args: &PortArgs) -> Wait {
    match args.wait {
        WaitArg::Spin => Wait::Spin,
        WaitArg::Poll => Wait::Poll(POLL),
        WaitArg::BusyPoll => Wait::BusyPoll,
    }
}

/// Sleeps until one of the queues has something.
pub(crate) fn poll_any<'q>(queues: impl IntoIterator<Item = &'q Queue>, timeout: Duration) -> Result<()> {
    let mut fds: Vec<PollFd<'_>> = queues
        .into_iter()
        .map(|queue| PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::IN))
        .collect();
    match poll(&mut fds, Some(&Timespec::try_from(timeout)?)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(anyhow!("poll(): {errno}")),
    }
}

/// The interface of a command, with what can be checked before anything is opened or sent.
pub(crate) fn interface(args: &PortArgs, output: &OutputArgs) -> Result<Interface> {
    let interface = Interface::by_name(&args.interface)?;
    args.check()?;
    if !interface.state()?.admin_up {
        return Err(ringside_xsk::Error::InterfaceDown {
            interface: args.interface.clone(),
        }
        .into());
    }
    pin::check(args)?;
    output::check(output)?;
    Ok(interface)
}

/// Opens the port of a command, on a UMEM of its own or a shared one, refusing to cut the user off.
pub(crate) fn open(
    interface: Interface,
    args: &PortArgs,
    direction: Direction,
    filter: Filter,
    umem: Option<&SharedUmem>,
) -> Result<Port> {
    open_with(interface, args, direction, filter, umem, Ok)
}

/// As [`open`], with more that is asked of the port.
pub(crate) fn open_with(
    interface: Interface,
    args: &PortArgs,
    direction: Direction,
    filter: Filter,
    umem: Option<&SharedUmem>,
    with: impl Fn((PortBuilder, QueueOptions)) -> Result<(PortBuilder, QueueOptions)>,
) -> Result<Port> {
    if direction != Direction::Transmit {
        refuse_own_connection(&interface, filter)?;
    }
    patiently(&interface, |timeout| {
        let options = args.options(direction).busy_timeout(timeout);
        let mut builder = Port::builder(interface.clone()).mode(args.mode);
        if direction != Direction::Transmit {
            builder = builder.filter(filter);
        }
        if let Some(queues) = &args.queues {
            builder = builder.queues(queues.0.iter().copied());
        }
        if let Some(umem) = umem {
            builder = builder.umem(umem);
        }
        let (builder, options) = with((builder, options))?;
        Ok(args.napi.apply(builder.options(options)).open()?)
    })
    .map_err(|error| match error.downcast_ref() {
        Some(ringside_xsk::Error::MtuTooLarge { .. }) => error.context("without --multi-buffer"),
        _ => error,
    })
}

/// Makes a UMEM that ports share. `frames` returns its number of frames for these options, and for
/// whether memory is short. If the kernel refuses that much memory and the user has not set
/// `--frames`, each queue gets the minimum. Also returns the options to open the ports with.
pub(crate) fn shared_umem(
    args: &PortArgs,
    from: &[Interface],
    frames: impl Fn(&PortArgs, bool) -> Result<u32>,
) -> Result<(SharedUmem, PortArgs)> {
    match args.shared_umem(frames(args, false)?, from) {
        Err(ringside_xsk::Error::Memory { limit, .. }) if args.frames.is_none() => {
            let fewest = QueueOptions::MIN_DEFAULT_FRAMES;
            let args = PortArgs {
                frames: Some(fewest),
                ..args.clone()
            };
            let umem = args.shared_umem(frames(&args, true)?, from)?;
            output::note(format_args!(
                "{fewest} frames a queue instead of {}, because {limit}",
                QueueOptions::DEFAULT_FRAMES
            ));
            Ok((umem, args))
        }
        umem => Ok((umem?, args.clone())),
    }
}

/// Opens a port, gives a queue that is taken more time than is usual, and waits for a carrier that is lost by it.
///
/// The kernel gives a queue back some time after its process has ended, behind a grace period and under the lock of all
/// changes to interfaces: mostly after 30 ms, but more than two seconds have been seen on a machine that was busy with both.
pub(crate) fn patiently(interface: &Interface, open: impl Fn(Duration) -> Result<Port>) -> Result<Port> {
    let carrier = Carrier::before(interface);
    let port = patiently_opened(open)?;
    napi::recover_when_attached();
    carrier.wait_for(interface);
    Ok(port)
}

fn patiently_opened(open: impl Fn(Duration) -> Result<Port>) -> Result<Port> {
    let first = open(BUSY);
    if let Err(error) = &first
        && let Some(ringside_xsk::Error::QueueBusy { interface, queue, .. }) = error.downcast_ref()
    {
        output::note(format_args!(
            "{interface} queue {queue} is in use; waiting {} s, in case who used it has just ended",
            BUSY_LONG.as_secs()
        ));
        return open(BUSY_LONG);
    }
    first
}

/// `SSH_CONNECTION` of this process or of the nearest one above it that has it: sudo does not hand it on.
fn ssh_connection() -> Option<String> {
    const NAME: &str = "SSH_CONNECTION";
    if let Ok(own) = std::env::var(NAME) {
        return Some(own);
    }
    let mut pid = rustix::process::getppid()?.as_raw_nonzero().get();
    while pid > 1 {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let found = environment
            .split(|&byte| byte == 0)
            .filter_map(|entry| std::str::from_utf8(entry).ok()?.strip_prefix(NAME)?.strip_prefix('='))
            .map(str::to_owned)
            .next();
        if found.is_some() {
            return found;
        }
        // "pid (comm) state ppid …": comm may hold spaces and brackets, but not behind the last one.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        pid = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

/// The SSH connection of this login.
#[derive(Clone, Copy)]
pub(crate) struct OwnConnection {
    client: IpAddr,
    pub(crate) server: SocketAddr,
}

impl OwnConnection {
    /// Parses `SSH_CONNECTION`: address and port of the client, address and port of the server.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        // Link-local addresses have a scope.
        let address = |word: &str| word.split('%').next()?.parse::<IpAddr>().ok();
        let client = address(words.next()?)?;
        let server = SocketAddr::new(address(words.nth(1)?)?, words.next()?.parse().ok()?);
        Some(Self { client, server })
    }
}

/// Returns the SSH connection of this login, if the interface carries it.
pub(crate) fn own_connection(interface: &Interface) -> Result<Option<OwnConnection>> {
    let Some(own) = ssh_connection().as_deref().and_then(OwnConnection::parse) else {
        return Ok(None);
    };
    let addresses = interface.addresses()?;
    let carried = addresses.iter().any(|entry| entry.address == own.server.ip());
    Ok(Some(own).filter(|_| carried))
}

/// Refuses a filter that takes the packets of the connection by which the user is logged in.
pub(crate) fn refuse_own_connection(interface: &Interface, filter: Filter) -> Result<()> {
    if let Some(OwnConnection { client, server }) = own_connection(interface)?
        && filter.takes_tcp(client, server)
    {
        bail!(
            "{interface} carries the SSH connection of this login ({}), and filter {filter} would \
             take its packets: choose another interface, or a filter such as udp:PORT",
            server.ip()
        );
    }
    Ok(())
}
